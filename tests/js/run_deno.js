import * as volery from "../../workers/src/index.deno.js";
import { denoHost as host } from "../../workers/src/hosts/deno.js";
import { answer } from "./run.js";

const makeWorker = Object.assign((url) => new Worker(url, { type: "module" }), {
  script: "worker.js",
});

const args = await new Response(Deno.stdin.readable).json();
console.log(JSON.stringify(await answer(Deno.args[0], { volery, host, makeWorker }, args)));
