/**
 * Templates trim strings by Python's idea of white space. JavaScript's differs in six
 * characters, so these travel through a template in the disguise of others.
 */

/** White space in Python only. */
const PYTHON_ONLY = "\x1c\x1d\x1e\x1f\x85";
/** White space in JavaScript only. */
const JAVASCRIPT_ONLY = "\ufeff";
/** White space in both, rare in texts. */
const SPACES =
  "\u2005\u2006\u2008\u2004\u200a\u2001\u2000\u1680\u205f\u2007\u2002\u2003\u2009\u202f";
/** White space in neither, and in no text: the last private-use characters of the plane. */
const OTHERS = "\uf8ff\uf8fe\uf8fd\uf8fc";

const DIFFERENT = /[\x1c-\x1f\x85\ufeff]/;

/**
 * @param {Record<string, unknown>} names what a template is given
 * @returns {{names: Record<string, unknown>, restore: (text: string) => string}} the same in
 *   disguise, and what takes it off the rendered text
 */
export function disguised(names) {
  const everything = JSON.stringify(names) ?? "";
  // JSON escapes control characters, all but the last two kinds
  if (!/\\u001[c-f]/i.test(everything) && !DIFFERENT.test(everything)) {
    return { names, restore: (text) => text };
  }
  /** @type {Map<string, string>} */
  const masks = new Map();
  /** @type {Map<string, string>} */
  const faces = new Map();
  const pair = (/** @type {string} */ chars, /** @type {string} */ candidates) => {
    const free = [...candidates].filter((c) => !everything.includes(c));
    [...chars].slice(0, free.length).forEach((c, i) => {
      masks.set(c, free[i]);
      faces.set(free[i], c);
    });
  };
  pair(PYTHON_ONLY, SPACES);
  pair(JAVASCRIPT_ONLY, OTHERS);
  const change = (/** @type {string} */ text, /** @type {Map<string, string>} */ map) =>
    Array.from(text, (c) => map.get(c) ?? c).join("");
  const inDisguise = (/** @type {unknown} */ value) =>
    changed(value, (text) => change(text, masks));
  return {
    names: /** @type {Record<string, unknown>} */ (inDisguise(names)),
    restore: (text) => change(text, faces),
  };
}

/**
 * A copy with every string changed, names of fields excepted.
 *
 * @param {unknown} value
 * @param {(text: string) => string} change
 * @returns {unknown}
 */
function changed(value, change) {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((v) => changed(v, change));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, changed(v, change)]));
}
