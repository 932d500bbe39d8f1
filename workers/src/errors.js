/**
 * The error hierarchy of Volery; the Python package has the same names. Every message
 * says what was found, what was expected and what to do about it, on one line.
 */

/** Base class of every error that Volery throws on purpose. */
export class VoleryError extends Error {}

/** An artifact cannot be used. */
export class ArtifactError extends VoleryError {}

/** A file that the artifact needs does not exist. */
export class ArtifactMissing extends ArtifactError {}

/** A file is truncated, altered, or breaks the format's rules. */
export class ArtifactCorrupt extends ArtifactError {}

/** A well-formed input that this version, or this host, cannot handle. */
export class ArtifactUnsupported extends ArtifactError {}

/** A request is wrong in itself; sending it again cannot help. */
export class RequestError extends VoleryError {}

/** A value outside its documented range. */
export class InvalidInput extends RequestError {}

/** A value of the wrong type. */
export class InvalidType extends InvalidInput {}

/** An input has more tokens than the model's limit. */
export class TooLong extends RequestError {
  /**
   * @param {string} message
   * @param {{numTokens: number, maxTokens: number}} counts
   */
  constructor(message, { numTokens, maxTokens }) {
    super(message);
    /** Tokens the input has, special tokens included. */
    this.numTokens = numTokens;
    /** The limit it exceeds. */
    this.maxTokens = maxTokens;
  }
}

/** A request that the configured budgets can never hold, however long it waits. */
export class NeverFits extends RequestError {}

/** The queue is full; nothing was computed. */
export class Overloaded extends VoleryError {
  /**
   * @param {string} message
   * @param {{retryAfterMs: number}} hint
   */
  constructor(message, { retryAfterMs }) {
    super(message);
    /** When the queue is expected to have room again. */
    this.retryAfterMs = retryAfterMs;
  }
}

/** The request could not, or did not, finish before its deadline. */
export class DeadlineExceeded extends VoleryError {}

/** The request was cancelled by its owner, or its model was closed. */
export class Aborted extends VoleryError {}

/** The model produced NaN or infinity for this request. */
export class NonFinite extends VoleryError {}

/** The backend could not allocate memory. */
export class OutOfMemory extends VoleryError {
  /**
   * @param {string} message
   * @param {{bytesRequested: number, cause?: unknown}} detail
   */
  constructor(message, { bytesRequested, cause }) {
    super(message, { cause });
    /** The size of the allocation that failed. */
    this.bytesRequested = bytesRequested;
  }
}

/** The backend died (a trap, a killed worker); reload the model. */
export class DeviceLost extends VoleryError {}

// Spelt out, because minifiers rename classes and callers compare names across realms.
const NAMES = {
  VoleryError,
  ArtifactError,
  ArtifactMissing,
  ArtifactCorrupt,
  ArtifactUnsupported,
  RequestError,
  InvalidInput,
  InvalidType,
  TooLong,
  NeverFits,
  Overloaded,
  DeadlineExceeded,
  Aborted,
  NonFinite,
  OutOfMemory,
  DeviceLost,
};
for (const [name, type] of Object.entries(NAMES)) {
  Object.defineProperty(type.prototype, "name", { value: name, configurable: true });
}

/**
 * An error as a message to another thread can carry it.
 *
 * @param {unknown} error
 * @returns {Record<string, unknown>}
 */
export function toPlain(error) {
  if (!(error instanceof Error)) return { name: "Error", message: String(error) };
  const { name, message } = error;
  return { ...error, name, message, cause: error.cause && String(error.cause) };
}

/**
 * The error that `toPlain` was given; one that is not ours becomes a `VoleryError`.
 *
 * @param {Record<string, any>} plain
 * @returns {VoleryError}
 */
export function fromPlain({ name, message, ...detail }) {
  const Kind = /** @type {Record<string, any>} */ (NAMES)[name];
  return Kind ? new Kind(message, detail) : new VoleryError(`${name}: ${message}`, detail);
}

/**
 * Throw `Aborted` if the signal has fired.
 *
 * @param {AbortSignal | undefined} signal
 * @param {string} what what was being done
 */
export function throwIfAborted(signal, what) {
  if (signal?.aborted) throw new Aborted(`${what} was aborted`, { cause: signal.reason });
}
