// A long-lived process: every line of its input is a trace (an array of lines), answered by
// a line with the digest of this engine's decisions, or with what went wrong.
import { createInterface } from "node:readline";
import { replay } from "../../workers/src/batching/index.js";

for await (const trace of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = { digest: replay(JSON.parse(trace)) };
  } catch (error) {
    answer = { error: `${error?.stack ?? error}` };
  }
  console.log(JSON.stringify(answer));
}
