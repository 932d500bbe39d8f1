/**
 * The host Cloudflare Workers. There every promise, timer and stream belongs to the request
 * that made it, and ends with it; and a request that has nothing of its own pending counts as
 * hanging. So whoever waits for a step, also one that it shares with others, helps to run it:
 * a step is handed to the gate, and the next beat of any request that waits runs it, there.
 * Between two beats other requests come in, and are batched together.
 */
import { waitUntil } from "cloudflare:workers";
import { once as onceFor } from "../once.js";
import { webHost } from "./web.js";

/** @typedef {import("../engine/clock.js").Clock} Clock */
/** @typedef {import("../hands.js").Model} StepModel */
/** @typedef {import("../step.js").Step} Step */

const BEAT_MS = 2;

/** Steps and alarms that wait for a request in which they can be run. */
class Gate {
  /** @type {(() => void)[]} */
  #steps = [];
  /** @type {Set<{call: () => void, atMs: number}>} */
  #alarms = new Set();

  /** Whether a step waits. */
  get isWaitedFor() {
    return this.#steps.length > 0;
  }

  /** @param {() => void} run */
  push(run) {
    this.#steps.push(run);
  }

  /** Run what waits, in the present request. */
  open() {
    for (const run of this.#steps.splice(0)) run();
    const now = performance.now();
    for (const alarm of [...this.#alarms]) {
      if (alarm.atMs <= now && this.#alarms.delete(alarm)) alarm.call();
    }
  }

  /** A clock whose alarms any request rings. @returns {Clock} */
  clock() {
    // Counted from now on: the host counts from 1970, which passes 2^52 ns.
    const origin = performance.now();
    return {
      nowNs: () => Math.floor((performance.now() - origin) * 1e6),
      wake: (call, delayNs) => {
        const alarm = { call, atMs: performance.now() + delayNs / 1e6 };
        this.#alarms.add(alarm);
        return alarm;
      },
      cancel: (alarm) => void this.#alarms.delete(alarm),
    };
  }
}

const gate = new Gate();

/** @returns {Clock} for an engine */
export const gateClock = () => gate.clock();

/**
 * @param {WebAssembly.Module} relaxed the build: nothing is compiled at run time
 * @returns {import("./web.js").Host}
 */
export function workerdHost(relaxed) {
  return {
    ...webHost,
    cache: undefined, // what is deployed or bound is near enough
    spawn: null,
    nextTask: null,
    wasm: { variant: "relaxed", module: relaxed },
  };
}

/**
 * A model whose steps wait at the gate. What `run` returns is no promise on purpose: its
 * callbacks are called in the request that ran the step, not in the one that asked for it.
 *
 * @param {StepModel} model
 * @returns {StepModel}
 */
export function gated(model) {
  const run = (/** @type {Step} */ step, /** @type {{threads?: number}} */ options) => ({
    then: (/** @type {any} */ resolve, /** @type {any} */ reject) =>
      gate.push(() => void model.run(step, options).then(resolve, reject)),
  });
  return forward(model, (key, value) => (key === "run" ? run : value));
}

/**
 * Wait, in the present request, for something that other requests may have to do with.
 *
 * @template T
 * @param {Promise<T>} promise
 * @returns {Promise<T>}
 */
export async function attend(promise) {
  const ended = promise.then(
    () => {},
    () => {},
  );
  // A caller that goes away does not take along what others wait for.
  hold(ended);
  const beat = () => {
    gate.open();
    timer = setTimeout(beat, gate.isWaitedFor ? 0 : BEAT_MS);
  };
  let timer = setTimeout(beat, 0);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Let the present request last until a promise settles, whether or not its client stays. Then
 * run the step that it may have left at the gate: there may be no other request to do it.
 *
 * @param {Promise<unknown>} ended
 */
function hold(ended) {
  const tidy = () =>
    new Promise((resolve) => {
      setTimeout(() => resolve(gate.open()), 0);
    });
  waitUntil(ended.then(tidy, tidy));
}

/**
 * The body of an answer, which is cancelled when its client leaves. A request that is not held
 * ends with its client, unheard, and a stream of JavaScript that is sent as it is may just be
 * dropped: only the runtime's own streams tell every time.
 *
 * @param {ReadableStream<Uint8Array>} body
 * @param {Promise<unknown>} ended settles once `body` is closed or cancelled
 * @returns {ReadableStream<Uint8Array>}
 */
export function watched(body, ended) {
  hold(ended);
  return body.pipeThrough(new IdentityTransformStream());
}

/**
 * An object, such as a model or a stream, whose every promise is attended by whoever calls.
 *
 * @template {object} T
 * @param {T} object
 * @returns {T}
 */
export function attended(object) {
  return forward(object, (_, value) => {
    if (typeof value !== "function") return value;
    return (/** @type {unknown[]} */ ...args) => {
      const result = value(...args);
      if (result instanceof Promise) return attend(result);
      // A proxy of it would be no body of a response
      if (result instanceof ReadableStream) return attendedReadable(result);
      return typeof result?.[Symbol.asyncIterator] === "function" ? attended(result) : result;
    };
  });
}

/**
 * A stream whose reads are attended, and which is cancelled when the client leaves.
 *
 * @template T
 * @param {ReadableStream<T>} stream
 * @returns {ReadableStream<T>}
 */
function attendedReadable(stream) {
  const reader = stream.getReader();
  hold(reader.closed);
  return new ReadableStream(
    {
      async pull(controller) {
        const { done, value } = await attend(reader.read());
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
}

/**
 * One value for all requests, made when the first asks for it; a failure is tried again. In
 * the global scope of a Worker neither storage nor timers can be used.
 *
 * @template {unknown[]} A
 * @template T
 * @param {(...args: A) => Promise<T>} make
 * @returns {(...args: A) => Promise<T>}
 */
export function once(make) {
  const first = onceFor(make);
  return (...args) => attend(first(...args));
}

/**
 * @template {object} T
 * @param {T} object
 * @param {(key: string | symbol, value: any) => any} replace
 * @returns {T} the object with some of its properties replaced; methods are bound to it
 */
function forward(object, replace) {
  return new Proxy(object, {
    get(target, key) {
      const value = Reflect.get(target, key);
      return replace(key, typeof value === "function" ? value.bind(target) : value);
    },
  });
}
