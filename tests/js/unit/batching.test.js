import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { canonicalJson } from "../../../workers/src/batching/canonical-json.js";
import {
  BatchingCore,
  FinishReason,
  LaneKind,
  StepOutcome,
  TraceRecorder,
  generationArrived,
  laneSpec,
  replay,
  requestArrived,
  schedulerConfig,
  stepCompleted,
  tick,
} from "../../../workers/src/batching/index.js";
import { ArtifactCorrupt, ArtifactUnsupported, InvalidInput } from "../../../workers/src/errors.js";

const MS = 1_000_000;
const LANE = "m/embed";

/** A trace of a few encoder requests, one of which misses its deadline. */
function recorded() {
  const lines = [];
  const recorder = new TraceRecorder((line) => lines.push(line));
  const core = new BatchingCore(
    [laneSpec({ name: LANE, maxTokens: 64, maxSeqs: 4 })],
    {
      threads: 2,
      concurrentSteps: 2,
    },
    schedulerConfig({ stepTargetMs: 9 }),
    recorder,
  );
  const running = [];
  const take = (decisions) => {
    running.push(...decisions.filter((d) => d.type === "step").map((d) => d.stepId));
  };
  for (let id = 0; id < 20; id++) {
    const numTokens = Array.from({ length: 1 + (id % 3) }, (_, i) => 3 + id + i);
    const deadlineNs = id % 5 === 0 ? (id + 1) * MS : -1;
    take(
      core.handle(requestArrived({ requestId: id, lane: LANE, numTokens, deadlineNs }), id * MS),
    );
  }
  for (let now = 20; running.length > 0; now += 5) {
    take(core.handle(stepCompleted({ stepId: running.shift(), deviceNs: 5 * MS }), now * MS));
  }
  assert.equal(core.numRequests, 0);
  return { lines, digest: recorder.digest() };
}

test("JSON is what Python's json.dumps writes", () => {
  const value = {
    b: [1, -1, 2 ** 52],
    a: 'é\u{1f600}"\\\n\u007f\u2028',
    "\uffff": 0,
    "\u{10000}": 1,
  };
  assert.equal(
    canonicalJson(value),
    '{"a":"\\u00e9\\ud83d\\ude00\\"\\\\\\n\\u007f\\u2028","b":[1,-1,4503599627370496],' +
      '"\\uffff":0,"\\ud800\\udc00":1}',
  );
});

test("replay makes the same decisions", () => {
  const { lines, digest } = recorded();
  assert.equal(replay(lines), digest);
  assert.ok(lines.some((line) => line.includes('"deadline"')));
});

test("another decision is found at its line", () => {
  const { lines } = recorded();
  lines[5] = lines[5].replace('"idle"', '"idel"');
  assert.throws(
    () => replay(lines),
    (e) => e instanceof ArtifactCorrupt && /line 6/.test(e.message),
  );
});

test("malformed traces are typed errors that name the line", () => {
  const [header] = recorded().lines;
  const malformed = [
    "not json",
    "[]",
    '{"d":[],"e":[["nonsense"]],"t":0}',
    '{"d":[],"e":[["aborted"]],"t":0}',
    '{"d":[],"e":[["arrived",1,"m/embed",5,0,-1]],"t":0}',
    '{"d":[],"e":[["arrived",1,"m/embed",[5],9,-1]],"t":0}',
    '{"d":[],"e":[["completed",0,"broken",0,[]]],"t":0}',
    '{"d":[],"e":[["step",0,"m/embed",[],[],0,"all"]],"t":0}',
    '{"d":[],"t":0}',
    '{"d":[],"e":[["tick"]],"t":"now"}',
    '{"d":[],"e":[["tick"]],"t":-1}',
  ];
  for (const line of malformed) {
    assert.throws(
      () => replay([header, line]),
      (e) => e instanceof ArtifactCorrupt && /line 2/.test(e.message),
      line,
    );
  }
  assert.throws(() => replay([]), ArtifactCorrupt);
  assert.throws(() => replay(["{}"]), ArtifactUnsupported);
  for (const key of ["lanes", "device", "config"]) {
    const broken = { ...JSON.parse(header), [key]: { no: 1 } };
    assert.throws(() => replay([JSON.stringify(broken)]), ArtifactCorrupt, key);
  }
});

test("events that no driver may send are refused", () => {
  const lanes = [
    laneSpec({ name: "e", maxTokens: 8, maxSeqs: 2 }),
    laneSpec({ name: "g", maxTokens: 8, maxSeqs: 2, kind: LaneKind.DECODER, kvBlocks: 4 }),
  ];
  const core = new BatchingCore(lanes);
  core.handle(requestArrived({ requestId: 1, lane: "e", numTokens: [3] }), 0);
  const wrong = [
    requestArrived({ requestId: 1, lane: "e", numTokens: [3] }),
    requestArrived({ requestId: 2, lane: "g", numTokens: [3] }),
    requestArrived({ requestId: 2, lane: "nowhere", numTokens: [3] }),
    generationArrived({ requestId: 2, lane: "g", tokens: [1], maxTokens: 0 }),
  ];
  for (const event of wrong) assert.throws(() => core.handle(event, 0), InvalidInput);
  for (const now of [-1, 2 ** 52 + 1, 0.5, NaN]) {
    assert.throws(() => core.handle(tick(), now), InvalidInput);
  }
  assert.throws(() => new BatchingCore([]), InvalidInput);
  assert.throws(() => new BatchingCore([lanes[0], lanes[0]]), InvalidInput);
  assert.throws(() => new BatchingCore(lanes, { threads: 0, concurrentSteps: 1 }), InvalidInput);
});

test("a completion with another number of tokens than were wanted is refused", () => {
  const lane = laneSpec({
    name: "g",
    maxTokens: 8,
    maxSeqs: 2,
    kind: LaneKind.DECODER,
    kvBlocks: 4,
  });
  const core = new BatchingCore([lane]);
  const arrival = generationArrived({ requestId: 0, lane: "g", tokens: [1, 2], maxTokens: 2 });
  const [step] = core.handle(arrival, 0);
  assert.throws(() => core.handle(stepCompleted({ stepId: step.stepId }), 1), InvalidInput);
});

test("a lost backend ends its requests, and every later one", () => {
  const core = new BatchingCore([laneSpec({ name: "e", maxTokens: 8, maxSeqs: 2 })]);
  const [step] = core.handle(requestArrived({ requestId: 0, lane: "e", numTokens: [3] }), 0);
  const lost = core.handle(stepCompleted({ stepId: step.stepId, outcome: StepOutcome.LOST }), 1);
  assert.equal(lost[0].reason, FinishReason.DEVICE_LOST);
  const late = core.handle(requestArrived({ requestId: 1, lane: "e", numTokens: [3] }), 2);
  assert.equal(late[0].reason, FinishReason.DEVICE_LOST);
});

test("knobs out of range and unknown ones are refused by name", () => {
  const wrong = [
    { stepTargetMs: 0 },
    { stepTargetMs: 1.5 },
    { fillPercent: "25" },
    { throughputSharePercent: 101 },
    { prefixCaching: 1 },
    { latency: { maxQueueSize: 0 } },
    { latency: { timeoutAction: "wait" } },
    { throughput: null },
    { maxWait: 5 },
  ];
  for (const options of wrong) {
    const [name] = Object.keys(options);
    assert.throws(
      () => schedulerConfig(options),
      (e) => e instanceof InvalidInput && e.message.includes(name),
      name,
    );
  }
});

test("the core reads no clock, draws nothing and uses no inexact function", () => {
  const root = new URL("../../../workers/src/batching/", import.meta.url);
  for (const name of readdirSync(root, { recursive: true })) {
    if (!name.endsWith(".js")) continue;
    const code = readFileSync(new URL(name, root), "utf8").replace(/\/\*[^]*?\*\/|\/\/.*/g, "");
    for (const [, from] of code.matchAll(/from "(.*?)"/g)) {
      assert.match(from, /^\.{1,2}\/(kv\/)?[a-z-]+\.js$|errors\.js$|artifact\/sha256\.js$/, name);
    }
    for (const banned of ["Date", "performance", "setTimeout", "await", "globalThis"]) {
      assert.ok(!new RegExp(`\\b${banned}\\b`).test(code), `${name} uses ${banned}`);
    }
    for (const [, used] of code.matchAll(/Math\.(\w+)/g)) {
      assert.ok(["abs", "ceil", "floor", "imul", "max", "min", "trunc"].includes(used), used);
    }
  }
});
