/** JSON as Python's `json.dumps(value, sort_keys=True, separators=(",", ":"))` writes it. */

/**
 * Keys in order of code points, no spaces, everything beyond printable ASCII escaped.
 * Numbers are integers below 2**53.
 *
 * @param {unknown} value
 * @returns {string}
 */
export function canonicalJson(value) {
  const json = JSON.stringify(value, (_, v) => (isRecord(v) ? sorted(v) : v));
  return json.replace(/[^ -~]/g, escape);
}

/** @param {string} unit one UTF-16 code unit */
function escape(unit) {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {Record<string, unknown>} record */
function sorted(record) {
  const keys = Object.keys(record).sort(byCodePoint);
  return Object.fromEntries(keys.map((key) => [key, record[key]]));
}

/**
 * Python compares code points, JavaScript UTF-16 units.
 *
 * @param {string} a
 * @param {string} b
 */
function byCodePoint(a, b) {
  const left = Array.from(a, (c) => c.codePointAt(0) ?? 0);
  const right = Array.from(b, (c) => c.codePointAt(0) ?? 0);
  const at = left.findIndex((c, i) => c !== right[i]);
  if (at < 0) return left.length - right.length;
  return (left[at] ?? -1) - (right[at] ?? -1);
}
