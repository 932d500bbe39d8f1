// node node.js [--port 8000] [--threads 2] ARTIFACT...
import { basename } from "node:path";
import { parseArgs } from "node:util";
import { load } from "volery";
import { createHandler } from "volery/serve";
import { serve } from "volery/serve/node";

const { values, positionals } = parseArgs({
  options: { port: { type: "string", default: "8000" }, threads: { type: "string", default: "1" } },
  allowPositionals: true,
});
const threads = Number(values.threads);
// Each is loaded when the first request asks for it.
const models = Object.fromEntries(
  positionals.map((folder) => [basename(folder), () => load(folder, { threads })]),
);
const server = await serve(createHandler({ models }), { port: Number(values.port) });
console.log(`${Object.keys(models).join(", ")} at ${server.url}/v1`);

const stop = async () => {
  await server.close();
  process.exit();
};
process.once("SIGINT", stop).once("SIGTERM", stop);
