import { readFileSync } from "node:fs";
import * as volery from "../../workers/src/index.node.js";
import { nodeHost as host } from "../../workers/src/hosts/node.js";
import { answer } from "./run.js";

const args = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(await answer(process.argv[2], { volery, host }, args)));
