/**
 * Workers that start before it is known what for: their scripts load while the artifact's
 * first files arrive.
 */

/** @typedef {import("./runner.js").PoolWorker} PoolWorker */
/** @typedef {import("./runner.js").SpawnWorker} SpawnWorker */
/** @typedef {import("./runner.js").WorkerEvents} WorkerEvents */

export class WorkerReserve {
  #spawn;
  /** @type {Waiting[]} */
  #waiting = [];
  #released = false;

  /** @param {SpawnWorker} spawn the host's */
  constructor(spawn) {
    this.#spawn = spawn;
  }

  /**
   * Start some, unless the reserve was released meanwhile.
   *
   * @param {number} count
   */
  fill(count) {
    while (!this.#released && this.#waiting.length < count) {
      try {
        this.#waiting.push(new Waiting(this.#spawn));
      } catch {
        return; // whoever takes one meets the same error
      }
    }
  }

  /** One of the reserve, or a new one. @type {SpawnWorker} */
  take = (events) => {
    const waiting = this.#waiting.shift();
    return waiting ? waiting.adopt(events) : this.#spawn(events);
  };

  /** Stop those that nobody took, and start no more ahead of their use. */
  release() {
    this.#released = true;
    for (const { worker } of this.#waiting.splice(0)) void worker.terminate();
  }
}

/** A worker whose events wait for somebody to take it. */
class Waiting {
  /** @type {WorkerEvents | null} */
  #events = null;
  /** @type {((events: WorkerEvents) => void)[]} */
  #kept = [];

  /** @param {SpawnWorker} spawn */
  constructor(spawn) {
    this.worker = spawn({
      onMessage: (message) => this.#tell((events) => events.onMessage(message)),
      onError: (error) => this.#tell((events) => events.onError(error)),
    });
  }

  /**
   * @param {WorkerEvents} events
   * @returns {PoolWorker}
   */
  adopt(events) {
    // Afterwards: an event's handler may use the worker that the caller is about to get.
    queueMicrotask(() => {
      this.#events = events;
      for (const tell of this.#kept.splice(0)) tell(events);
    });
    return this.worker;
  }

  /** @param {(events: WorkerEvents) => void} tell */
  #tell(tell) {
    if (this.#events) tell(this.#events);
    else this.#kept.push(tell);
  }
}
