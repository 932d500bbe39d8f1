// Replays traces, each an array of lines, and answers with their digests.
import { replay } from "../../../workers/src/batching/index.js";

export async function main(_, { traces }) {
  return Object.fromEntries(traces.map(([name, lines]) => [name, replay(lines)]));
}
