// What a TypeScript user writes.
import { load, loadModel, packSequences, OutOfMemory, memoryCache } from "volery";

export async function search(texts: string[], signal: AbortSignal): Promise<number> {
  const model = await load("/models/minilm/", {
    signal,
    threads: 2,
    cache: memoryCache({ maxBytes: 1 << 26 }),
    onProgress: ({ loadedBytes, totalBytes }) => console.log(loadedBytes / totalBytes),
  });
  try {
    const vectors = await model.embed(texts, { traffic: "latency", deadlineMs: 50 });
    return vectors.length;
  } catch (error) {
    if (error instanceof OutOfMemory) console.error(error.bytesRequested);
    throw error;
  } finally {
    await model.close();
  }
}

export async function step(): Promise<Float32Array> {
  const hands = await loadModel(new URL("https://example.org/model/"), { pool: "instances" });
  const { output } = await hands.run(packSequences([[101, 102]]));
  return output;
}
