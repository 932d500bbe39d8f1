// deno run --allow-read --allow-net=127.0.0.1 deno.js PORT ARTIFACT...
import { load } from "volery";
import { createHandler } from "volery/serve";

const [port, ...folders] = Deno.args;
// Each is loaded when the first request asks for it.
const models = Object.fromEntries(
  folders.map((folder) => [folder.split("/").at(-1), () => load(folder)]),
);
const server = Deno.serve(
  {
    hostname: "127.0.0.1",
    port: Number(port),
    onListen: ({ port }) => {
      console.log(`${Object.keys(models).join(", ")} at http://127.0.0.1:${port}/v1`);
    },
  },
  createHandler({ models }),
);
for (const signal of ["SIGINT", "SIGTERM"]) {
  Deno.addSignalListener(signal, async () => {
    await server.shutdown();
    Deno.exit();
  });
}
