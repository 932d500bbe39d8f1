// Peak memory of loading, over what the process had before (Node on Linux).
import { readFileSync } from "node:fs";

/** Anonymous memory in bytes: without the pages of Node's own executable. */
function anonymous() {
  const status = readFileSync("/proc/self/status", "utf8");
  return 1024 * Number(/RssAnon:\s+(\d+)/.exec(status)[1]);
}

export async function main({ volery }, { artifact }) {
  const before = anonymous();
  let peak = 0;
  const look = () => (peak = Math.max(peak, anonymous()));
  const model = await volery.loadModel(artifact, { onProgress: look });
  look();
  const { memoryBytes } = model.info;
  await model.close();
  return { peak: peak - before, memoryBytes };
}
