// Loads with threads and never closes.
export async function main({ volery }, { artifact }) {
  const model = await volery.loadModel(artifact, { threads: 2 });
  return { threads: model.info.threads };
}
