/** What counts as an integer in a step. */

/**
 * @param {unknown} value
 * @returns {value is number} an integer of 32 bits without a sign
 */
export function isCount(value) {
  return typeof value === "number" && value >>> 0 === value;
}

/**
 * @param {unknown} value
 * @returns {value is Int32Array | readonly number[]}
 */
export function isIntegers(value) {
  return value instanceof Int32Array || Array.isArray(value);
}
