// A worker dies in the middle of steps, again while idle, and then again and again (Node).
import { base64, failureOf } from "./files.js";

export async function main({ volery }, { artifact, sequences, pool, bytes }) {
  const workers = [];
  process.on("worker", (worker) => workers.push(worker));
  const from = bytes ? await filesOf(volery, artifact) : artifact;
  const model = await volery.loadModel(from, { threads: 2, pool });
  const step = volery.packSequences(sequences);
  const answer = async () => base64((await model.run(step)).output);
  const first = await answer();
  const names = async (promises) => (await Promise.all(promises)).map((f) => f?.name ?? "ok");

  const running = Array.from({ length: 50 }, () => failureOf(model.run(step)));
  await workers[0].terminate();
  const midStep = await names(running);
  // Several callers come at once: one new backend serves them all.
  const later = await Promise.allSettled([answer(), answer(), answer()]);
  const again = later.map((l) => (l.status === "fulfilled" ? l.value === first : l.reason.message));
  const started = workers.length;
  if (bytes) {
    await model.close();
    return { midStep, again };
  }

  await workers.at(-1).terminate();
  const idle = await failureOf(answer());

  const deaths = [];
  for (let i = 0; i < 5; i++) {
    const dying = failureOf(model.run(step));
    deaths.push(await lose(workers, dying));
  }
  await model.close();
  return { midStep, again, started, idle: idle?.name ?? "ok", deaths };
}

/** Kill a worker while a step waits or runs; what the step said. */
async function lose(workers, dying) {
  await workers.at(-1).terminate();
  return (await dying)?.name ?? "ok";
}

async function filesOf(volery, folder) {
  const source = volery.fileSource(folder);
  const read = async (name) => {
    const parts = [];
    for await (const chunk of source.open(name, {})) parts.push(chunk.slice());
    return new Uint8Array(await new Blob(parts).arrayBuffer());
  };
  const manifest = await read("manifest.json");
  const files = { "manifest.json": manifest };
  for (const name of Object.keys(JSON.parse(new TextDecoder().decode(manifest)).files)) {
    files[name] = await read(name);
  }
  return files;
}
