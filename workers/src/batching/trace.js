/**
 * Record and replay: JSON lines of every call, with a digest of every decision.
 *
 * The first line is the header (version, lanes, device, config), then one line per call:
 *
 *     {"d":[[decision], ...],"e":[[event], ...],"t":nowNs}
 *
 * Events and decisions are arrays of a tag and the fields in order. Decisions hold integers
 * and strings only, and are written with sorted keys and no spaces, so every host writes the
 * same bytes. The digest is SHA-256 over the decision arrays, one line each; two engines
 * agree exactly when their digests do. The format is that of `runtime_py/batching/trace.py`.
 */
import { Sha256 } from "../artifact/sha256.js";
import { ArtifactCorrupt, ArtifactUnsupported } from "../errors.js";
import { canonicalJson } from "./canonical-json.js";
import { schedulerConfig } from "./config.js";
import { BatchingCore } from "./core.js";
import { LaneKind, StepOutcome, TrafficClass, laneSpec } from "./types.js";

/** @typedef {import("./core.js").Recorder} Recorder */
/** @typedef {import("./events.js").Decision} Decision */
/** @typedef {import("./events.js").Event} Event */

export const TRACE_VERSION = 2;

const SHAPE = ["numSeqs", "numTokens", "sumLenSq", "kvTokens", "threads"];
const STEP = ["stepId", "lane", "seqs"];
const COST = ["shape", "predictedNs", "bound", "why"];
const WHY = [
  ...["turn", "overdue", "blocked", "binding", "limit", "slackNs", "waiting", "expected"],
];

/** The fields of every event and decision after its tag, in order. */
const FIELDS = Object.freeze({
  arrived: [
    ...["requestId", "lane", "numTokens", "traffic", "deadlineNs"],
    ...["latencyTargetNs", "tenant"],
  ],
  generate: [
    ...["requestId", "lane", "tokens", "maxTokens", "stopIds", "samples", "salt", "traffic"],
    ...["deadlineNs", "ttftTargetNs", "tpotTargetNs", "tenant"],
  ],
  stopped: ["requestId", "sample"],
  aborted: ["requestId"],
  completed: ["stepId", "outcome", "deviceNs", "nonFinite", "sampled"],
  tick: [],
  step: [...STEP, ...COST],
  decoder_step: [...STEP, "copies", ...COST],
  token: ["requestId", "sample", "tokenId", "position", "stepId", "row"],
  sample: ["requestId", "sample", "reason"],
  ready: ["requestId", "item", "numItems", "stepId", "row"],
  finished: ["requestId", "reason", "item", "stepId", "value", "neededNs"],
  idle: ["wakeAtNs"],
});

const SLICE = ["requestId", "item", "numTokens"];
const DECODER_SLICE = [
  ...["requestId", "sample", "contextLen", "numTokens", "wanted", "kept", "blocks"],
];

/** Of an event's fields: what their values must be. @type {Record<string, (v: any) => boolean>} */
const CHECKS = {
  lane: (v) => typeof v === "string",
  salt: (v) => typeof v === "string",
  tenant: (v) => typeof v === "string",
  numTokens: isIntegers,
  tokens: isIntegers,
  stopIds: isIntegers,
  nonFinite: isIntegers,
  sampled: isIntegers,
  traffic: (v) => Object.values(TrafficClass).includes(v),
  outcome: (v) => Object.values(StepOutcome).includes(v),
};

/** Of an event's last fields, which an array may leave out. @type {Record<string, unknown>} */
const DEFAULTS = {
  deadlineNs: -1,
  latencyTargetNs: -1,
  ttftTargetNs: -1,
  tpotTargetNs: -1,
  tenant: "",
  sampled: [],
};

const EVENTS = ["arrived", "generate", "stopped", "aborted", "completed", "tick"];

/** Give one to `BatchingCore`; it writes lines and keeps the digest. @implements {Recorder} */
export class TraceRecorder {
  #write;
  #hash = new Sha256();
  #encoder = new TextEncoder();
  /** The decisions of the last call, as they were hashed. */
  last = "";

  /** @param {(line: string) => void} [write] receives each line, with its line feed */
  constructor(write) {
    this.#write = write;
  }

  /** Hexadecimal SHA-256 of all decisions; ends the recording. */
  digest() {
    return this.#hash.hex();
  }

  /** @type {Recorder["start"]} */
  start(lanes, device, config) {
    const spec = { stepThreads: 0, ...device };
    const header = { volery_trace: TRACE_VERSION, lanes, device: spec, config };
    this.#write?.(`${canonicalJson(snakeKeys(header))}\n`);
  }

  /** @type {Recorder["record"]} */
  record(events, nowNs, decisions) {
    this.last = canonicalJson(decisions.map(plain));
    this.#hash.update(this.#encoder.encode(`${this.last}\n`));
    this.#write?.(`{"d":${this.last},"e":${canonicalJson(events.map(plain))},"t":${nowNs}}\n`);
  }
}

/**
 * Feed a recorded trace to a fresh core.
 *
 * @param {Iterable<string>} lines
 * @returns {string} the digest of the decisions, which are the recorded ones
 * @throws {ArtifactCorrupt} the trace is malformed, or this core decides otherwise; the
 *   message names the line
 * @throws {ArtifactUnsupported} a newer version of the format
 */
export function replay(lines) {
  const recorder = new TraceRecorder();
  /** @type {BatchingCore | null} */
  let core = null;
  let number = 0;
  for (const line of lines) {
    number += 1;
    const record = parse(line, number);
    if (core === null) {
      core = coreOf(record, recorder);
      continue;
    }
    try {
      core.handleAll(record.e.map(eventOf), record.t);
    } catch (cause) {
      throw new ArtifactCorrupt(`trace line ${number} is malformed: ${cause}`, { cause });
    }
    const recorded = canonicalJson(record.d);
    if (recorder.last !== recorded) {
      throw new ArtifactCorrupt(
        `trace line ${number} records the decisions ${recorded}, this core makes ` +
          `${recorder.last}; the trace is from another version of the scheduler`,
      );
    }
  }
  if (core === null) throw new ArtifactCorrupt("the trace is empty, expected its header");
  return recorder.digest();
}

/**
 * A core that a trace's header describes.
 *
 * @param {Record<string, any>} header
 * @param {Recorder} [recorder]
 */
export function coreOf(header, recorder) {
  if (header.volery_trace !== TRACE_VERSION) {
    throw new ArtifactUnsupported(
      `trace version is ${String(header.volery_trace)}, this runtime reads ${TRACE_VERSION}`,
    );
  }
  try {
    const { lanes, device, config } = camelKeys(header);
    const specs = lanes.map((/** @type {any} */ lane) => {
      if (!Object.values(LaneKind).includes(lane.kind ?? LaneKind.ENCODER)) {
        throw new TypeError(`a lane's kind is ${lane.kind}`);
      }
      return laneSpec({ ...lane, config: lane.config && schedulerConfig(lane.config) });
    });
    return new BatchingCore(specs, device, schedulerConfig(config), recorder);
  } catch (cause) {
    throw new ArtifactCorrupt(`trace header is malformed: ${cause}`, { cause });
  }
}

/**
 * An event from its array.
 *
 * @param {readonly any[]} array
 * @returns {Event}
 */
export function eventOf([type, ...values]) {
  const fields = EVENTS.includes(type) ? FIELDS[/** @type {Event["type"]} */ (type)] : null;
  if (fields === null || values.length > fields.length) {
    throw new TypeError(`unknown event ${canonicalJson([type, ...values])}`);
  }
  /** @type {Record<string, any>} */
  const event = { type };
  fields.forEach((name, i) => {
    const value = i < values.length ? values[i] : DEFAULTS[name];
    if (!(CHECKS[name] ?? Number.isInteger)(value)) {
      throw new TypeError(`${name} is ${JSON.stringify(value) ?? "missing"}`);
    }
    event[name] = value;
  });
  return /** @type {Event} */ (event);
}

/**
 * An event or decision as an array of its tag and its fields.
 *
 * @param {Event | Decision} record
 * @returns {unknown[]}
 */
export function plain(record) {
  const { type } = record;
  const slice = type === "decoder_step" ? DECODER_SLICE : SLICE;
  const values = FIELDS[type].map((name) => {
    const value = /** @type {any} */ (record)[name];
    if (name === "shape") return pick(value, SHAPE);
    if (name === "why") return pick(value, WHY);
    return name === "seqs" ? value.map((/** @type {object} */ s) => pick(s, slice)) : value;
  });
  return [type, ...values];
}

/**
 * @param {any} record
 * @param {readonly string[]} fields
 */
function pick(record, fields) {
  return fields.map((name) => record[name]);
}

/** @param {unknown} value */
function isIntegers(value) {
  return Array.isArray(value) && value.every(Number.isInteger);
}

/**
 * @param {string} line
 * @param {number} number
 * @returns {Record<string, any>}
 */
function parse(line, number) {
  let value = null;
  try {
    value = JSON.parse(line);
  } catch {
    // told below
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ArtifactCorrupt(`trace line ${number} is not a JSON object`);
  }
  return value;
}

/** @param {string} name */
const snake = (name) => name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);

/** @param {string} name */
const camel = (name) => name.replace(/_([a-z])/g, (_, c) => c.toUpperCase());

/** @param {any} value */
const snakeKeys = (value) => renameKeys(value, snake);

/** @param {any} value */
const camelKeys = (value) => renameKeys(value, camel);

/**
 * @param {any} value
 * @param {(name: string) => string} rename
 * @returns {any}
 */
function renameKeys(value, rename) {
  if (Array.isArray(value)) return value.map((v) => renameKeys(v, rename));
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([k, v]) => [rename(k), renameKeys(v, rename)]);
  return Object.fromEntries(entries);
}
