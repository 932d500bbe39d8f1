/**
 * An elastic pool of P threads over one shared memory with one copy of the weights. A step
 * asks for k threads; it starts when k are idle, first come, first served, so P steps with
 * one thread each and one step with P threads are the same mechanism.
 *
 * The posting thread never waits: a page's main thread may not. The worker that leads a
 * step tells us by a message when it is done.
 */
import { Aborted, DeviceLost } from "../errors.js";

/** @typedef {import("../step/workspace.js").Workspace} Workspace */
/** @typedef {import("../wasm/instance.js").Runtime} Runtime */
/** @typedef {import("./runner.js").PoolWorker} PoolWorker */
/** @typedef {import("./runner.js").SpawnWorker} SpawnWorker */
/** @typedef {import("./runner.js").Step} Step */
/** @typedef {import("./runner.js").StepResult} StepResult */
/** @typedef {import("./runner.js").StepRunner} StepRunner */

/**
 * @typedef {object} Job
 * @property {Step} step
 * @property {number} threads
 * @property {(result: StepResult) => void} resolve
 * @property {(error: unknown) => void} reject
 */

/**
 * @typedef {object} Flight a step being run
 * @property {Job} job
 * @property {number[]} ranks the threads that run it; the first leads
 * @property {number} start
 */

/** @implements {StepRunner} */
export class ThreadPool {
  /** @type {DeviceLost | null} */
  lost = null;
  #runtime;
  #workspaces;
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
  /** @type {Promise<void> | null} */
  #closed = null;
  /** @type {(() => void) | null} */
  #onDrained = null;

  /**
   * Use `ThreadPool.start`.
   *
   * @param {Runtime} runtime
   * @param {readonly Workspace[]} workspaces all of its
   */
  constructor(runtime, workspaces) {
    this.#runtime = runtime;
    this.#workspaces = workspaces;
    this.threads = runtime.threads;
    this.concurrency = workspaces.length;
    this.#freeWorkspaces = workspaces.map((_, ws) => ws);
  }

  /**
   * Start the threads of `runtime`, whose build must have them.
   *
   * @param {Runtime} runtime
   * @param {readonly Workspace[]} workspaces all of its
   * @param {SpawnWorker} spawn
   * @returns {Promise<ThreadPool>} when every worker is ready
   */
  static async start(runtime, workspaces, spawn) {
    const pool = new ThreadPool(runtime, workspaces);
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
   * @param {Step} step
   * @param {number} threads
   * @returns {Promise<StepResult>}
   */
  run(step, threads) {
    if (this.#closed) return Promise.reject(new Aborted("the model is closed; load it again"));
    if (this.lost) return Promise.reject(this.lost);
    return new Promise((resolve, reject) => {
      this.#queue.push({ step, threads: Math.min(threads, this.threads), resolve, reject });
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
        this.#workspaces[ws].write(job.step);
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
      job.resolve(this.#workspaces[ws].read((performance.now() - start) * 1e6));
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
    if (this.lost) return;
    this.lost = new DeviceLost(`a worker thread died (${cause})`, { cause });
    this.#refuse(this.lost);
    for (const { job } of this.#flights.values()) job.reject(this.lost);
    this.#flights.clear();
    this.#onDrained?.();
    // Those that share its steps would wait for it for ever.
    void this.#terminate();
  }

  /** @param {Error} error */
  #refuse(error) {
    for (const job of this.#queue.splice(0)) job.reject(error);
  }

  async #terminate() {
    await Promise.all(this.#workers.map((worker) => worker.terminate()));
  }
}
