// Aborts loads at every stage; the last load is left alone and must work.
import { failureOf } from "./files.js";

export async function main({ volery }, { artifact, threads, pool }) {
  const failures = [];
  let events = Infinity;
  for (let stop = 0; stop <= events; stop++) {
    const abort = new AbortController();
    if (stop === 0) abort.abort();
    let seen = 0;
    const onProgress = () => {
      seen += 1;
      if (seen === stop) abort.abort();
    };
    const loading = volery.loadModel(artifact, { signal: abort.signal, onProgress, threads, pool });
    failures.push(await failureOf(loading));
    if (failures.at(-1) === null) await (await loading).close();
    if (abort.signal.aborted === false) break;
  }
  return failures;
}
