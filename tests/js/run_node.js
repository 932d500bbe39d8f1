import { readFileSync } from "node:fs";
import { Worker } from "node:worker_threads";
import * as volery from "../../workers/src/index.node.js";
import { nodeHost as host } from "../../workers/src/hosts/node.js";
import { answer } from "./run.js";

const makeWorker = Object.assign((url) => new Worker(url), { script: "worker.node.js" });

const args = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(await answer(process.argv[2], { volery, host, makeWorker }, args)));
