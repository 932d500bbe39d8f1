/** Python in Deno: the program comes on standard input. */
import { startPython } from "./python.js";

const [folder, wheel] = Deno.args;
const { loadPyodide } = await import(`file://${folder}pyodide.mjs`);
const runPython = await startPython(loadPyodide, folder, wheel);
console.log(await runPython(await new Response(Deno.stdin.readable).text()));
Deno.exit(0);
