/** Errors as answers: statuses, and the body that clients of OpenAI's API expect. */
import {
  Aborted,
  ArtifactError,
  DeadlineExceeded,
  DeviceLost,
  NeverFits,
  OutOfMemory,
  Overloaded,
  RequestError,
  TooLong,
  VoleryError,
} from "../errors.js";

/**
 * What a client is told.
 *
 * @typedef {object} Failure
 * @property {number} status of HTTP; 499, which clients never see, when they went away
 * @property {{message: string, type: string, param: string | null, code: string}} error
 * @property {Record<string, string>} headers
 */

/** A request that never reaches a model. */
export class HttpError extends VoleryError {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} message
   * @param {{param?: string, headers?: Record<string, string>}} [detail]
   */
  constructor(status, code, message, { param, headers = {} } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.param = param ?? null;
    this.headers = headers;
  }
}

/** Something is wrong with a field of the body. */
export class BadField extends HttpError {
  /**
   * @param {string} param path of the field
   * @param {string} message
   */
  constructor(param, message) {
    super(400, "invalid_value", message, { param });
  }
}

const RETRY_SOON = { "retry-after": "1" };

/**
 * What a client is told of `error`.
 *
 * @param {unknown} error
 * @param {boolean} isGone the client went away
 * @returns {Failure}
 */
export function failureOf(error, isGone) {
  const message = error instanceof Error ? error.message : String(error);
  if (isGone) return failure(499, "client_closed_request", "the client closed the connection");
  if (error instanceof HttpError) {
    const { status, code, param, headers } = error;
    return failure(status, code, message, { param, headers });
  }
  if (error instanceof TooLong) return failure(413, "context_length_exceeded", message);
  if (error instanceof NeverFits) return failure(413, "never_fits", message);
  if (error instanceof RequestError) return failure(400, "invalid_value", message);
  if (error instanceof Overloaded) {
    const seconds = Math.max(1, Math.ceil(error.retryAfterMs / 1000));
    const headers = { "retry-after": String(seconds) };
    return failure(429, "overloaded", message, { headers });
  }
  if (error instanceof DeadlineExceeded) return failure(504, "deadline_exceeded", message);
  if (error instanceof DeviceLost) {
    return failure(503, "device_lost", message, { headers: RETRY_SOON });
  }
  if (error instanceof OutOfMemory) {
    return failure(503, "out_of_memory", message, { headers: RETRY_SOON });
  }
  if (error instanceof Aborted) return failure(503, "model_closed", message);
  if (error instanceof ArtifactError) return failure(503, "model_unavailable", message);
  if (error instanceof VoleryError) return failure(500, "server_error", message);
  return failure(500, "server_error", "internal error; the server's log tells more");
}

/**
 * @param {number} status
 * @param {string} code
 * @param {string} message
 * @param {{param?: string | null, headers?: Record<string, string>}} [detail]
 * @returns {Failure}
 */
function failure(status, code, message, { param = null, headers = {} } = {}) {
  let type = status >= 500 ? "server_error" : "invalid_request_error";
  if (status === 429) type = "rate_limit_error";
  return { status, error: { message, type, param, code }, headers };
}
