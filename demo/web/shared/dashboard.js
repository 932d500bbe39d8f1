/**
 * `<volery-dashboard>`: what a model's batching core is doing, four times a second.
 *
 * Give it a source of statistics with `dashboard.watch(model)`. `note(label, milliseconds)`
 * adds a sample to a latency; those named in the attribute `latencies="A, B"` are shown from
 * the start.
 */
import { GAUGES } from "./gauges.js";
import { STYLE } from "./dashboard-style.js";

const TICK_MS = 250;
const HISTORY = 100;
const WIDTH = 100;
const HEIGHT = 30;
const CELL =
  '<dt></dt><dd><span class="value">–</span> <span class="unit"></span>' +
  `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true">` +
  '<polygon points=""/><polyline points=""/></svg></dd>';

/** @typedef {import("./gauges.js").Stats} Stats */

class Dashboard extends HTMLElement {
  /** @type {Map<string, Cell>} */
  #cells = new Map();
  /** Samples of each latency since the last tick. @type {Map<string, number[]>} */
  #fresh = new Map();
  #timer = 0;
  #grid = document.createElement("dl");
  #batches = document.createElement("div");

  connectedCallback() {
    if (this.shadowRoot) return;
    const root = this.attachShadow({ mode: "open" });
    const style = document.createElement("style");
    style.textContent = STYLE;
    this.#batches.className = "batches";
    root.append(style, this.#grid, this.#batches);
    this.setAttribute("role", "group");
    this.ariaLabel ??= "What the scheduler is doing";
    for (const { label, unit } of GAUGES) this.#cell(label, unit);
    const latencies = this.getAttribute("latencies")?.split(",") ?? [];
    for (const label of latencies) this.#cell(label.trim(), "ms");
    this.#showBatches({});
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }

  /**
   * @param {{stats: () => Stats, info: {threads: number}}} model
   */
  watch({ stats, info: { threads } }) {
    clearInterval(this.#timer);
    let before = stats();
    let at = performance.now();
    this.#timer = setInterval(() => {
      const now = stats();
      const seconds = (performance.now() - at) / 1000;
      at += seconds * 1000;
      for (const { label, digits = 0, read } of GAUGES) {
        const value = read({ now, before, seconds, threads });
        this.#cell(label).show(value, digits);
      }
      for (const [label, samples] of this.#fresh) this.#latency(label, samples.splice(0));
      this.#showBatches(now.batchSizes);
      before = now;
    }, TICK_MS);
  }

  /**
   * Another sample of a latency; the chart shows the mean of those between two ticks.
   *
   * @param {string} label
   * @param {number} milliseconds
   */
  note(label, milliseconds) {
    const samples = this.#fresh.get(label);
    if (samples) samples.push(milliseconds);
    else this.#fresh.set(label, [milliseconds]);
  }

  /** @param {string} label @param {number[]} samples */
  #latency(label, samples) {
    const cell = this.#cell(label, "ms");
    const mean = samples.reduce((sum, ms) => sum + ms, 0) / samples.length;
    const value = samples.length > 0 ? mean : cell.last;
    cell.show(value, value < 10 ? 1 : 0);
  }

  /** @param {string} label @param {string} [unit] */
  #cell(label, unit = "") {
    let cell = this.#cells.get(label);
    if (cell === undefined) {
      cell = new Cell(label, unit);
      this.#grid.append(cell.element);
      this.#cells.set(label, cell);
    }
    return cell;
  }

  /**
   * How many steps had how many sequences, as a row of bars.
   *
   * @param {Record<number, number>} sizes
   */
  #showBatches(sizes) {
    const entries = Object.entries(sizes).map(([size, steps]) => [Number(size), steps]);
    const widest = Math.max(8, ...entries.map(([size]) => size));
    const most = Math.max(1, ...entries.map(([, steps]) => steps));
    const bars = Array.from({ length: widest }, (_, i) => {
      const steps = sizes[i + 1] ?? 0;
      const bar = document.createElement("i");
      bar.style.height = steps > 0 ? `${Math.max(6, (100 * steps) / most)}%` : "2px";
      if (steps === 0) bar.className = "none";
      bar.title = `${steps} steps with ${i + 1} sequences`;
      return bar;
    });
    const caption = document.createElement("p");
    const largest = Math.max(0, ...entries.map(([size]) => size));
    caption.textContent =
      largest > 0
        ? `Steps by their number of sequences: 1 to ${widest}, the largest so far ${largest}`
        : "Steps by their number of sequences: none yet";
    const row = document.createElement("div");
    row.ariaHidden = "true";
    row.append(...bars);
    this.#batches.replaceChildren(caption, row);
  }
}

/** One number, and how it was lately. */
class Cell {
  element = document.createElement("div");
  /** @type {number[]} */
  #history = [];

  /** @param {string} label @param {string} unit */
  constructor(label, unit) {
    this.element.className = "cell";
    this.element.innerHTML = CELL;
    this.#part("dt").textContent = label;
    this.#part(".unit").textContent = unit;
  }

  get last() {
    return this.#history.at(-1) ?? NaN;
  }

  /** @param {number} value not finite: not known yet @param {number} digits after the point */
  show(value, digits) {
    if (!Number.isFinite(value)) return;
    this.#history.push(value);
    if (this.#history.length > HISTORY) this.#history.shift();
    this.#part(".value").textContent = value.toLocaleString("en", {
      minimumFractionDigits: digits,
      maximumFractionDigits: digits,
    });
    const top = Math.max(...this.#history, 1e-9);
    const line = this.#history.map((v, i) => {
      const x = ((HISTORY - this.#history.length + i) * WIDTH) / (HISTORY - 1);
      return `${x.toFixed(2)},${(HEIGHT - 1 - (HEIGHT - 2) * (v / top)).toFixed(2)}`;
    });
    const left = line[0].split(",")[0];
    this.#part("polyline").setAttribute("points", line.join(" "));
    this.#part("polygon").setAttribute(
      "points",
      `${left},${HEIGHT} ${line.join(" ")} ${WIDTH},${HEIGHT}`,
    );
  }

  /** @param {string} selector @returns {Element} */
  #part(selector) {
    return /** @type {Element} */ (this.element.querySelector(selector));
  }
}

customElements.define("volery-dashboard", Dashboard);
