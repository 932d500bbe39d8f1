// Embeds in concurrent calls; every result with its facts, vectors as bytes.
import { base64 } from "./files.js";

export async function main({ volery }, { artifact, options, calls }) {
  const model = await volery.load(artifact, options);
  const results = await Promise.all(
    calls.map(async ([texts, callOptions]) => {
      const { vectors, ...facts } = await model.embedWithInfo(texts, callOptions);
      const rows = typeof texts === "string" ? [vectors] : vectors;
      return { ...facts, vectors: rows.map(base64) };
    }),
  );
  const stats = model.stats();
  await model.close();
  const { id, dimensions, maxTokens, threads, variant } = model.info;
  return { results, stats, info: { id, dimensions, maxTokens, threads, variant } };
}
