// The application in a module worker or a service worker: it answers messages.
import { answer } from "./answer.js";

globalThis.onmessage = async ({ data, ports: [port] }) => {
  try {
    port.postMessage({ result: await answer(...data) });
  } catch (error) {
    port.postMessage({ error: `${error.stack ?? error}` });
  }
};
