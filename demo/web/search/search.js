/** Search as you type (latency class) beside a bulk re-index (throughput class). */
import { embedAgainAndAgain } from "../shared/bulk.js";
import "../shared/dashboard.js";
import { at, complain, loadShown, percentile, readCorpus, readiness, say } from "../shared/page.js";

const HITS = 8;
/** A key may find the device busy for so long, so bulk steps are small. */
const STEP_TARGET_MS = 8;

/** @typedef {import("../shared/page.js").Model} Model */

/** Milliseconds from key to results. */
const samples = { idle: /** @type {number[]} */ ([]), busy: /** @type {number[]} */ ([]) };
let asked = 0;
let shown = 0;
/** @type {AbortController | null} the bulk job that runs */
let bulk = null;

async function main() {
  const model = await loadShown("minilm", { scheduler: { stepTargetMs: STEP_TARGET_MS } });
  at("dashboard").watch({ stats: () => model.stats(), info: model.info });
  say(at("status"), "Embedding the corpus…");
  const passages = await readCorpus();
  const start = performance.now();
  const vectors = await model.embed(passages, { traffic: "throughput" });
  const seconds = ((performance.now() - start) / 1000).toFixed(2);
  say(at("status"), `${readiness(model)} ${passages.length} passages embedded in ${seconds} s.`);

  at("query").disabled = at("bulk").disabled = false;
  at("query").focus();
  at("query").addEventListener("input", () => search(model, passages, vectors));
  at("bulk").addEventListener("click", () => toggleBulk(model, passages));
  document.addEventListener("keydown", (event) => {
    if (event.altKey && event.code === "KeyB") {
      event.preventDefault();
      toggleBulk(model, passages);
    }
  });
  // For scripts that measure the page.
  Object.assign(globalThis, { voleryDemo: { samples, model } });
}

/**
 * @param {Model} model
 * @param {string[]} passages
 * @param {Float32Array[]} vectors of length 1, so that a dot product is the cosine
 */
async function search(model, passages, vectors) {
  const number = ++asked;
  const query = at("query").value.trim();
  if (!query) {
    shown = number;
    at("hits").replaceChildren();
    return;
  }
  const kind = bulk ? "busy" : "idle";
  const start = performance.now();
  try {
    const vector = /** @type {Float32Array} */ (await model.embed(query, { traffic: "latency" }));
    // Every key counts, but an answer that was overtaken is not shown.
    if (number > shown) {
      shown = number;
      show(best(vector, passages, vectors));
    }
    record(kind, performance.now() - start);
  } catch (error) {
    complain(at("status"), error);
  }
}

/**
 * @param {Float32Array} vector
 * @param {string[]} passages
 * @param {Float32Array[]} vectors
 */
function best(vector, passages, vectors) {
  return vectors
    .map((v, i) => ({ passage: passages[i], score: dot(v, vector) }))
    .sort((a, b) => b.score - a.score)
    .slice(0, HITS);
}

/** @param {{passage: string, score: number}[]} hits */
function show(hits) {
  at("hits").replaceChildren(
    ...hits.map(({ passage, score }) => {
      const item = document.createElement("li");
      const number = document.createElement("span");
      number.className = "score";
      number.textContent = score.toFixed(3);
      const text = document.createElement("span");
      text.textContent = passage;
      item.append(number, text);
      return item;
    }),
  );
}

/** @param {"idle" | "busy"} kind @param {number} milliseconds */
function record(kind, milliseconds) {
  samples[kind].push(milliseconds);
  at("dashboard").note("Search", milliseconds);
  const [median, tail, count] = at(kind).querySelectorAll("td");
  median.textContent = `${percentile(samples[kind], 0.5).toFixed(1)} ms`;
  tail.textContent = `${percentile(samples[kind], 0.95).toFixed(1)} ms`;
  count.textContent = String(samples[kind].length);
}

/** @param {Model} model @param {string[]} passages */
async function toggleBulk(model, passages) {
  if (bulk) {
    bulk.abort();
    return;
  }
  const mine = (bulk = new AbortController());
  at("bulk-action").textContent = "Stop";
  say(at("bulk-status"), "Running…");
  const start = performance.now();
  try {
    const count = await embedAgainAndAgain(model, passages, mine.signal, (done) => {
      const rate = (done / (performance.now() - start)) * 1000;
      const passages = done.toLocaleString("en");
      at("bulk-status").textContent = `${passages} passages, ${rate.toFixed(0)} a second`;
    });
    say(at("bulk-status"), `Stopped after ${count.toLocaleString("en")} passages.`);
  } catch (error) {
    complain(at("bulk-status"), error);
  } finally {
    bulk = null;
    at("bulk-action").textContent = "Start";
  }
}

/** @param {Float32Array} a @param {Float32Array} b */
function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

try {
  await main();
} catch (error) {
  complain(at("status"), error);
}
