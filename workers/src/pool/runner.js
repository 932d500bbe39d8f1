/** What runs steps, and what the pools need from their host. Types only. */

/** @typedef {import("../step.js").Step} Step */
/** @typedef {import("../step.js").StepResult} StepResult */

/**
 * Runs steps: on the calling thread, on threads over one memory, or on independent instances.
 *
 * @typedef {object} StepRunner
 * @property {number} threads most threads in a step
 * @property {number} concurrency steps in flight at once; more wait their turn
 * @property {import("../errors.js").DeviceLost | null} lost why it can run no more steps
 * @property {(step: Step, threads: number) => Promise<StepResult>} run a checked step, on up
 *   to `threads` threads
 * @property {() => Promise<void>} close let steps in flight end, refuse later ones
 */

/**
 * A host's worker.
 *
 * @typedef {object} PoolWorker
 * @property {(message: unknown, transfer?: ArrayBuffer[]) => void} post
 * @property {() => Promise<void>} terminate
 * @property {(busy: boolean) => void} hold whether the worker keeps its process alive
 */

/**
 * @typedef {object} WorkerEvents
 * @property {(message: any) => void} onMessage
 * @property {(error: unknown) => void} onError
 */

/** @typedef {(events: WorkerEvents) => PoolWorker} SpawnWorker */

/** @typedef {{weights: number, workspaces: number, cache: number, total: number}} MemoryBytes */

export {};
