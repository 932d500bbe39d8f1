/**
 * An elastic pool of P threads over one shared memory with one copy of the weights. A step
 * asks for k threads; it starts when k are idle, first come, first served, so P steps with
 * one thread each and one step with P threads are the same mechanism.
 *
 * The posting thread never waits: a page's main thread may not. The worker that leads a
 * step tells us by a message when it is done.
 */
import { Aborted, DeviceLost } from "../errors.js";

/** @typedef {import("../wasm/instance.js").Runtime} Runtime */

/**
 * A host's worker thread.
 *
 * @typedef {object} PoolWorker
 * @property {(message: unknown) => void} post
 * @property {() => Promise<void>} terminate
 * @property {(busy: boolean) => void} hold whether the worker keeps its process alive
 */

/**
 * @typedef {object} WorkerEvents
 * @property {(message: any) => void} onMessage
 * @property {(error: unknown) => void} onError
 */

/** @typedef {(events: WorkerEvents) => PoolWorker} SpawnWorker */

/**
 * @typedef {object} Job
 * @property {number} threads
 * @property {(ws: number) => void} write
 * @property {(ws: number, deviceNs: number) => any} read
 * @property {(result: any) => void} resolve
 * @property {(error: unknown) => void} reject
 */

/**
 * @typedef {object} Flight a step being run
 * @property {Job} job
 * @property {number[]} ranks the threads that run it; the first leads
 * @property {number} start
 */

/** @typedef {import("./inline.js").StepRunner} StepRunner */

/** @implements {StepRunner} */
export class ThreadPool {
  #runtime;
  /** @type {PoolWorker[]} */
  #workers = [];
  /** @type {number[]} */
  #idle = [];
  /** @type {number[]} */
  #freeWorkspaces;
  /** @type {Job[]} */
  #queue = [];
  /** @type {Map<number, Flight>} by workspace */
  #flights = new Map();
  /** @type {Error | null} */
  #refusal = null;
  /** @type {Promise<void> | null} */
  #closed = null;
  /** @type {(() => void) | null} */
  #onDrained = null;

  /**
   * Use `ThreadPool.start`.
   *
   * @param {Runtime} runtime
   */
  constructor(runtime) {
    this.#runtime = runtime;
    this.threads = runtime.threads;
    this.#freeWorkspaces = runtime.workspaces.map((_, ws) => ws);
  }

  /**
   * Start the threads of `runtime`, whose build must have them.
   *
   * @param {Runtime} runtime
   * @param {SpawnWorker} spawn
   * @returns {Promise<ThreadPool>} when every worker is ready
   */
  static async start(runtime, spawn) {
    const pool = new ThreadPool(runtime);
    const threads = Array.from({ length: runtime.threads }, (_, thread) => thread);
    const ready = threads.map((thread) => pool.#start(thread, spawn));
    try {
      await Promise.all(ready);
    } catch (cause) {
      await pool.#terminate();
      throw cause;
    }
    return pool;
  }

  /**
   * @template R
   * @param {number} threads
   * @param {(ws: number) => void} write
   * @param {(ws: number, deviceNs: number) => R} read
   * @returns {Promise<R>}
   */
  run(threads, write, read) {
    if (this.#refusal) return Promise.reject(this.#refusal);
    return new Promise((resolve, reject) => {
      const wanted = Math.min(threads, this.threads);
      this.#queue.push({ threads: wanted, write, read, resolve, reject });
      this.#dispatch();
    });
  }

  /** Refuse what is queued, let steps in flight end, stop the workers. Idempotent. */
  close() {
    this.#closed ??= (async () => {
      this.#refuse(new Aborted("the model is closed; load it again"));
      if (this.#flights.size > 0) {
        await new Promise((resolve) => (this.#onDrained = () => resolve(undefined)));
      }
      this.#workers.forEach((_, thread) => this.#runtime.exports.v_stop(thread));
      await this.#terminate();
    })();
    return this.#closed;
  }

  /**
   * @param {number} thread
   * @param {SpawnWorker} spawn
   * @returns {Promise<void>} when it can take steps
   */
  #start(thread, spawn) {
    return new Promise((resolve, reject) => {
      const fail = (/** @type {unknown} */ cause) => {
        reject(cause);
        this.#lose(cause);
      };
      const worker = spawn({
        onError: fail,
        onMessage: (message) => {
          if (message.type === "loaded") {
            const { module, memory } = this.#runtime;
            try {
              worker.post({ module, memory, thread });
            } catch (cause) {
              fail(cause);
            }
          } else if (message.type === "ready") {
            this.#idle.push(thread);
            worker.hold(false);
            resolve();
          } else if (message.type === "led") {
            this.#finish(message.ws);
          } else if (message.type === "failed") {
            fail(new Error(message.message));
          }
        },
      });
      this.#workers[thread] = worker;
    });
  }

  #dispatch() {
    while (this.#queue.length > 0 && this.#queue[0].threads <= this.#idle.length) {
      // A decoder has one workspace: its steps share the cache and run one after another.
      const ws = this.#freeWorkspaces.pop();
      if (ws === undefined) return;
      const job = /** @type {Job} */ (this.#queue.shift());
      try {
        job.write(ws);
      } catch (error) {
        this.#freeWorkspaces.push(ws);
        job.reject(error);
        continue;
      }
      const ranks = this.#idle.splice(0, job.threads);
      this.#flights.set(ws, { job, ranks, start: performance.now() });
      this.#workers[ranks[0]].hold(true);
      // Helpers first: they wake while the leader is being posted.
      for (let rank = ranks.length - 1; rank >= 0; rank--) {
        this.#runtime.exports.v_post(ranks[rank], ws, rank, ranks.length);
      }
    }
  }

  /** @param {number} ws */
  #finish(ws) {
    const flight = this.#flights.get(ws);
    if (flight === undefined) return;
    const { job, ranks, start } = flight;
    this.#flights.delete(ws);
    this.#workers[ranks[0]].hold(false);
    try {
      job.resolve(job.read(ws, (performance.now() - start) * 1e6));
    } catch (error) {
      job.reject(error);
    }
    this.#freeWorkspaces.push(ws);
    this.#idle.push(...ranks);
    this.#dispatch();
    if (this.#flights.size === 0) this.#onDrained?.();
  }

  /** A worker died: the memory it shares may be inconsistent, so the whole pool is lost. */
  #lose(/** @type {unknown} */ cause) {
    const lost = new DeviceLost(`a worker thread died (${cause}); load the model again`, { cause });
    this.#refuse(lost);
    for (const { job } of this.#flights.values()) job.reject(lost);
    this.#flights.clear();
    this.#onDrained?.();
  }

  /** @param {Error} error */
  #refuse(error) {
    this.#refusal ??= error;
    for (const job of this.#queue.splice(0)) job.reject(error);
  }

  async #terminate() {
    await Promise.all(this.#workers.map((worker) => worker.terminate()));
  }
}
