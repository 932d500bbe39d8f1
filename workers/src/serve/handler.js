/** The `fetch` handler: routes, errors, and what is counted of every request. */
import { checkInt, kindOf } from "../checks.js";
import { Deferred } from "../engine/deferred.js";
import { DeviceLost, InvalidType } from "../errors.js";
import { readJson } from "./body.js";
import { chatCompletions } from "./chat.js";
import { completions } from "./completions.js";
import { embeddings } from "./embeddings.js";
import { HttpError, failureOf } from "./errors.js";
import { Metrics } from "./metrics.js";
import { Models, describe } from "./models.js";

/** @typedef {import("../model.js").Model} Model */
/** @typedef {import("./call.js").Call} Call */
/** @typedef {import("./models.js").ModelLoader} ModelLoader */
/** @typedef {import("./models.js").Once} Once */
/** @typedef {import("./models.js").Served} Served */
/** @typedef {(name: unknown, task: "embed" | "generate") => ReturnType<Call["find"]>} Find */

/**
 * @typedef {object} HandlerOptions
 * @property {Record<string, Model | ModelLoader>} models by the names that clients use: loaded
 *   models, or functions that load one when the first request asks for it. A function is given
 *   the handler's second argument, in Cloudflare Workers the bindings
 * @property {import("../generation/options.js").SamplingOptions} [defaults] of generations,
 *   where a request is silent; by default temperature 1, as in OpenAI's API
 * @property {number} [maxBodyBytes] of a request, 8 MiB by default
 * @property {(error: unknown) => void} [onError] hears of errors that are the server's fault;
 *   `console.error` by default
 */

/** @typedef {(request: Request, env?: any) => Promise<Response>} FetchHandler */

/**
 * What hosts do in ways of their own.
 *
 * @typedef {object} ServeHost
 * @property {Once} once
 * @property {(body: ReadableStream, ended: Promise<void>) => ReadableStream} watched the body,
 *   which is cancelled when the client leaves; the promise settles with its end
 */

const MAX_BODY_BYTES = 8 << 20;
const POSTS = new Map([
  ["/v1/embeddings", embeddings],
  ["/v1/chat/completions", chatCompletions],
  ["/v1/completions", completions],
]);
const GETS = ["/v1/models", "/metrics", "/health"];

/**
 * A host's `createHandler`.
 *
 * @param {ServeHost} host
 */
export function createHandlerMaker({ once, watched }) {
  /**
   * Make a handler that serves models as OpenAI's API does: `/v1/embeddings`,
   * `/v1/chat/completions`, `/v1/completions`, `/v1/models`, and `/metrics` and `/health`.
   *
   * @param {HandlerOptions} options
   * @returns {FetchHandler} never rejects: what goes wrong is a response
   * @throws {InvalidInput} an option is not what it should be
   */
  return function createHandler(options) {
    if (typeof options !== "object" || options === null) {
      throw new InvalidType(`options is ${kindOf(options)}, expected an object with models`);
    }
    const server = new Server(new Models(options.models, once), watched, options);
    return (request, env) => server.handle(request, env);
  };
}

class Server {
  #models;
  #watched;
  #defaults;
  #maxBodyBytes;
  #onError;
  #metrics = new Metrics();

  /**
   * @param {Models} models
   * @param {ServeHost["watched"]} watched
   * @param {HandlerOptions} options
   */
  constructor(
    models,
    watched,
    { defaults, maxBodyBytes = MAX_BODY_BYTES, onError = console.error },
  ) {
    this.#models = models;
    this.#watched = watched;
    this.#defaults = { temperature: 1, ...defaults };
    this.#maxBodyBytes = checkInt("maxBodyBytes", maxBodyBytes, 1, 2 ** 30);
    this.#onError = onError;
  }

  /**
   * @param {Request} request
   * @param {unknown} env
   * @returns {Promise<Response>}
   */
  async handle(request, env) {
    const arrivedMs = performance.now();
    const { pathname } = new URL(request.url);
    const path = pathname.length > 1 ? pathname.replace(/\/+$/, "") : pathname;
    /** @type {Deferred<void>} */
    const end = new Deferred();
    const over = (/** @type {number} */ status) => {
      if (end.settled) return;
      end.resolve();
      this.#metrics.ended(routeOf(path), status, performance.now() - arrivedMs);
    };
    this.#metrics.began();
    /** @type {{served: Served, model: Model} | null} */
    let used = null;
    const fail = (/** @type {unknown} */ error) => {
      if (error instanceof DeviceLost && used !== null) used.served.lost(used.model);
      const found = failureOf(error, request.signal.aborted);
      if (found.status === 500 || found.status === 503) this.#onError(error);
      return found;
    };
    try {
      const response = await this.#route(path, request, {
        arrivedMs,
        ended: (error) => over(error === undefined ? 200 : fail(error).status),
        find: async (name, task) => {
          used = await this.#models.find(name, task, env);
          return { name: used.served.name, model: used.model };
        },
      });
      const type = response.headers.get("content-type");
      if (response.body !== null && type?.startsWith("text/event-stream")) {
        return new Response(this.#watched(response.body, end.promise), response);
      }
      over(response.status);
      return response;
    } catch (error) {
      const { status, headers, error: body } = fail(error);
      over(status);
      return Response.json({ error: body }, { status, headers });
    }
  }

  /**
   * @param {string} path
   * @param {Request} request
   * @param {Pick<Call, "arrivedMs" | "ended"> & {find: Find}} call
   * @returns {Promise<Response>}
   */
  async #route(path, request, { arrivedMs, ended, find }) {
    const { method, headers, signal } = request;
    const post = POSTS.get(path);
    if (post !== undefined) {
      if (method !== "POST") throw notAllowed(method, "POST");
      const body = await readJson(request, this.#maxBodyBytes);
      return post({
        body,
        headers,
        signal,
        arrivedMs,
        find: (task) => find(body.model, task),
        metrics: this.#metrics,
        defaults: this.#defaults,
        ended,
      });
    }
    const isModel = path.startsWith("/v1/models/");
    if (!GETS.includes(path) && !isModel) {
      const routes = [...POSTS.keys(), ...GETS].join(", ");
      throw new HttpError(404, "not_found", `there is no such path, expected one of ${routes}`);
    }
    if (method !== "GET" && method !== "HEAD") throw notAllowed(method, "GET");
    if (isModel) return Response.json(this.#model(path.slice("/v1/models/".length)));
    if (path === "/metrics") return this.#metricsPage();
    if (path === "/health") return this.#health();
    return Response.json({ object: "list", data: this.#models.all.map(describe) });
  }

  /** @param {string} name as it stands in the URL */
  #model(name) {
    const served = this.#models.all.find((s) => encodeURI(s.name) === encodeURI(decoded(name)));
    if (served !== undefined) return describe(served);
    throw new HttpError(404, "model_not_found", "there is no model of that name; see /v1/models");
  }

  #metricsPage() {
    const headers = { "content-type": "text/plain; version=0.0.4; charset=utf-8" };
    return new Response(this.#metrics.text(this.#models), { headers });
  }

  /** 503 while a model that was asked for could not be loaded. */
  #health() {
    const models = this.#models.all.map(({ name, state }) => [name, state]);
    const isWell = models.every(([, state]) => state !== "failed");
    return Response.json(
      { status: isWell ? "ok" : "unavailable", models: Object.fromEntries(models) },
      { status: isWell ? 200 : 503 },
    );
  }
}

/**
 * The path as a label: there are only so many.
 *
 * @param {string} path
 */
function routeOf(path) {
  if (path.startsWith("/v1/models/")) return "/v1/models";
  return POSTS.has(path) || GETS.includes(path) ? path : "other";
}

/** @param {string} name */
function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/**
 * @param {string} method
 * @param {string} allow
 */
function notAllowed(method, allow) {
  const headers = { allow };
  const message = `the method is ${method}, expected ${allow}`;
  return new HttpError(405, "method_not_allowed", message, { headers });
}
