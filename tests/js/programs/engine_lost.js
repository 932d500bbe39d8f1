// A worker dies under an engine: what becomes of the calls that it was running (Node).
import { base64, failureOf } from "./files.js";

export async function main({ volery }, { embedder, decoder, pool }) {
  const workers = [];
  process.on("worker", (worker) => workers.push(worker));
  const model = await volery.load(embedder, { threads: 2, pool });
  const texts = Array.from({ length: 300 }, (_, i) => `text number ${i} of many`);
  const before = (await model.embed(texts)).map(base64);
  const running = Array.from({ length: 3 }, () => model.embed(texts));
  const killed = workers[0].terminate();
  const during = (await Promise.all(running)).map((rows) => rows.map(base64));
  await killed;
  const after = (await model.embed(texts)).map(base64);
  const equal = [...during, after].every((rows) => rows.every((row, i) => row === before[i]));
  const { finished } = model.stats();
  await model.close();

  const at = workers.length;
  const story = await volery.load(decoder, { threads: 2 });
  const tell = () => story.generate("a bird", { maxTokens: 12, ignoreEos: true }).result();
  const first = (await tell()).text;
  const stream = story.generate("once upon a time", { maxTokens: 300, ignoreEos: true });
  await stream.next();
  const dying = failureOf(stream.result());
  await workers[at].terminate();
  const lost = await dying;
  const again = (await tell()).text === first;
  await story.close();
  return { equal, finished, started: workers.length > 2, lost: lost?.name, again };
}
