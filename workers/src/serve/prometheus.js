/** Counters, gauges and histograms in Prometheus' text format (version 0.0.4). */

/** @typedef {Record<string, string>} Labels */

/** @param {string} value */
const escaped = (value) =>
  value.replaceAll("\\", "\\\\").replaceAll("\n", "\\n").replaceAll('"', '\\"');

/** @param {Labels} labels */
function labelled(labels) {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`);
  return pairs.length > 0 ? `{${pairs.join(",")}}` : "";
}

/** A family of metrics as it is written: its head, and a line per value. */
export class Family {
  /** @type {string[]} */
  #lines;

  /**
   * @param {string} name
   * @param {"counter" | "gauge" | "histogram"} type
   * @param {string} help one line
   */
  constructor(name, type, help) {
    this.name = name;
    this.#lines = [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
  }

  /**
   * @param {Labels} labels
   * @param {number} value
   * @param {string} [suffix] of the name
   */
  add(labels, value, suffix = "") {
    this.#lines.push(`${this.name}${suffix}${labelled(labels)} ${value}`);
    return this;
  }

  /**
   * @param {Labels} labels
   * @param {readonly (readonly [number, number])[]} counts upper bound -> observations of at
   *   most that and more than the bound before, ascending; the last bound is infinite
   * @param {number} sum of all observations
   */
  addHistogram(labels, counts, sum) {
    let total = 0;
    for (const [bound, count] of counts) {
      total += count;
      const le = bound === Infinity ? "+Inf" : String(bound);
      this.add({ ...labels, le }, total, "_bucket");
    }
    return this.add(labels, sum, "_sum").add(labels, total, "_count");
  }

  toString() {
    return `${this.#lines.join("\n")}\n`;
  }
}

/** A number per set of labels that only grows. */
export class Counter {
  /** @type {Map<string, {labels: Labels, value: number}>} */
  #values = new Map();

  /**
   * @param {string} name ends in `_total`
   * @param {string} help
   */
  constructor(name, help) {
    this.name = name;
    this.help = help;
  }

  /**
   * @param {Labels} labels
   * @param {number} [amount]
   */
  add(labels, amount = 1) {
    const key = labelled(labels);
    const found = this.#values.get(key);
    if (found === undefined) this.#values.set(key, { labels, value: amount });
    else found.value += amount;
  }

  toString() {
    const family = new Family(this.name, "counter", this.help);
    for (const { labels, value } of this.#values.values()) family.add(labels, value);
    return family.toString();
  }
}

/** How values are distributed, per set of labels. */
export class Histogram {
  /** @type {Map<string, {labels: Labels, counts: number[], sum: number}>} */
  #values = new Map();
  #bounds;

  /**
   * @param {string} name
   * @param {string} help
   * @param {readonly number[]} bounds upper ones of the buckets, ascending
   */
  constructor(name, help, bounds) {
    this.name = name;
    this.help = help;
    this.#bounds = [...bounds, Infinity];
  }

  /**
   * @param {Labels} labels
   * @param {number} value
   */
  observe(labels, value) {
    const key = labelled(labels);
    let found = this.#values.get(key);
    if (found === undefined) {
      found = { labels, counts: this.#bounds.map(() => 0), sum: 0 };
      this.#values.set(key, found);
    }
    found.counts[this.#bounds.findIndex((bound) => value <= bound)] += 1;
    found.sum += value;
  }

  toString() {
    const family = new Family(this.name, "histogram", this.help);
    for (const { labels, counts, sum } of this.#values.values()) {
      const pairs = this.#bounds.map((bound, i) => /** @type {const} */ ([bound, counts[i]]));
      family.addHistogram(labels, pairs, sum);
    }
    return family.toString();
  }
}
