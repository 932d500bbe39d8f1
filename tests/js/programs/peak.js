// Peak memory of loading, over what the process had before (Node).
export async function main({ volery }, { artifact }) {
  const before = process.memoryUsage().rss;
  const model = await volery.loadModel(artifact);
  // maxRSS is in kilobytes.
  const peak = process.resourceUsage().maxRSS * 1024 - before;
  const { memoryBytes } = model.info;
  await model.close();
  return { peak, memoryBytes };
}
