import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";

const HOST = new URL("../../../workers/src/hosts/node.js", import.meta.url).href;

test("whoever awaits a worker's end sees it, whatever comes meanwhile", async () => {
  const script = `
    import { Worker } from "node:worker_threads";
    import { nodeHost } from ${JSON.stringify(HOST)};
    const spin = () => new Worker("for (;;);", { eval: true });
    const worker = nodeHost.spawn({ onMessage() {}, onError() {} }, spin);
    const ending = worker.terminate();
    worker.hold(false); // as when a late answer arrives
    await ending;
    console.log("ended");
  `;
  const run = promisify(execFile);
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", script]);
  assert.equal(stdout, "ended\n");
});
