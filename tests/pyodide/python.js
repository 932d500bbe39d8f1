/** Starts Pyodide with the wheel, and runs programs whose answer is their `result`. */

/**
 * @param {(options: object) => Promise<any>} loadPyodide
 * @param {string} indexURL
 * @param {string} wheel
 * @returns {Promise<(code: string) => Promise<string>>} JSON of `{result}` or `{error}`
 */
export async function startPython(loadPyodide, indexURL, wheel) {
  const python = await loadPyodide({ indexURL });
  await python.loadPackage(wheel, { messageCallback: () => {} });
  return async (code) => {
    const globals = python.toPy({});
    try {
      await python.runPythonAsync(code, { globals });
      return python.runPython("import json; json.dumps({'result': result})", { globals });
    } catch (error) {
      return JSON.stringify({ error: String(error) });
    } finally {
      globals.destroy();
    }
  };
}
