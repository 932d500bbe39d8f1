/**
 * Runs a benchmark's `main` in Pyodide under Node, from this checkout.
 *
 *     node bench/batching/pyodide.mjs MODULE [ARGUMENT ...]
 */
import { fileURLToPath } from "node:url";
import { loadPyodide } from "../../demo/node_modules/pyodide/pyodide.mjs";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

const [module, ...args] = process.argv.slice(2);
const python = await loadPyodide({ stdout: (line) => console.log(line) });
python.mountNodeFS("/checkout", ROOT);
await python.runPythonAsync(`
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, "/checkout")
`);
python.globals.set("args", python.toPy([module, ...args]));
await python.runPythonAsync(`
import importlib
sys.argv = args
importlib.import_module(args[0]).main()
`);
