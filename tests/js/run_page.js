import * as volery from "../../workers/src/index.js";
import { webHost as host } from "../../workers/src/hosts/web.js";
import { answer } from "./run.js";

const makeWorker = Object.assign((url) => new Worker(url, { type: "module" }), {
  script: "worker.js",
});

export const run = (program, args) => answer(program, { volery, host, makeWorker }, args);
