/** `volery/serve/node`: a `fetch` handler behind `node:http`. */
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

/** @typedef {import("./handler.js").FetchHandler} FetchHandler */
/** @typedef {import("node:http").IncomingMessage} IncomingMessage */
/** @typedef {import("node:http").ServerResponse} ServerResponse */

/**
 * Serve `handler` at an address.
 *
 * @param {FetchHandler} handler
 * @param {object} [options]
 * @param {number} [options.port] 8000 by default; 0: any that is free
 * @param {string} [options.hostname] "127.0.0.1" by default: this machine only
 * @returns {Promise<{url: string, close: () => Promise<void>}>} once it listens. `close` lets
 *   answers that have begun end, and takes no more
 */
export async function serve(handler, { port = 8000, hostname = "127.0.0.1" } = {}) {
  const server = createServer((incoming, outgoing) => void exchange(handler, incoming, outgoing));
  await new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, hostname, () => resolve(undefined));
  });
  const address = /** @type {import("node:net").AddressInfo} */ (server.address());
  const host = address.family === "IPv6" ? `[${address.address}]` : address.address;
  return {
    url: `http://${host}:${address.port}`,
    close: () =>
      new Promise((resolve, reject) => {
        server.close((error) => (error ? reject(error) : resolve()));
        server.closeIdleConnections();
      }),
  };
}

/**
 * One request and its answer; the request's signal fires when the client goes away.
 *
 * @param {FetchHandler} handler
 * @param {IncomingMessage} incoming
 * @param {ServerResponse} outgoing
 */
async function exchange(handler, incoming, outgoing) {
  const gone = new AbortController();
  outgoing.once("close", () => {
    if (!outgoing.writableFinished) gone.abort();
  });
  let response;
  try {
    response = await handler(toRequest(incoming, gone.signal));
  } catch {
    // No request that `fetch` could have made
    response = new Response("bad request\n", { status: 400 });
  }
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.flushHeaders();
  if (response.body === null || incoming.method === "HEAD") {
    await response.body?.cancel();
    outgoing.end();
    return;
  }
  // A client that went away has cancelled the body by this
  await pipeline(Readable.fromWeb(/** @type {any} */ (response.body)), outgoing).catch(() => {});
}

/**
 * @param {IncomingMessage} incoming
 * @param {AbortSignal} signal
 * @returns {Request}
 */
function toRequest(incoming, signal) {
  const { method = "GET", url = "/", headersDistinct } = incoming;
  const found = new Headers();
  for (const [name, values = []] of Object.entries(headersDistinct)) {
    for (const value of values) found.append(name, value);
  }
  const hasBody = method !== "GET" && method !== "HEAD";
  // Not the client's idea of our name: the handler looks at the path only
  const { pathname, search } = new URL(url, "http://localhost");
  return new Request(`http://localhost${pathname}${search}`, {
    method,
    headers: found,
    signal,
    ...(hasBody && { body: /** @type {any} */ (Readable.toWeb(incoming)), duplex: "half" }),
  });
}
