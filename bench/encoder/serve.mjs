// The engine's side of engine.py in Node: answers lines of JSON on standard input.
import { createInterface } from "node:readline";

/**
 * Say that the engine is ready, then run the corpus as often as asked.
 *
 * @param {object} ready
 * @param {(mode: string) => Promise<void>} run
 */
export async function serve(ready, run) {
  console.log(JSON.stringify({ ready }));
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await timed(() => run(JSON.parse(line).run))));
  }
}

/** @param {() => Promise<void>} work */
export async function timed(work) {
  const cpu = process.cpuUsage();
  const start = performance.now();
  await work();
  const wall = performance.now() - start;
  const { user, system } = process.cpuUsage(cpu);
  return { wall_s: wall / 1e3, cpu_s: (user + system) / 1e6 };
}
