/** One value for all callers. */

/**
 * @template {unknown[]} A
 * @template T
 * @param {(...args: A) => Promise<T>} make called by the first caller; a failure is tried again
 * @returns {(...args: A) => Promise<T>}
 */
export function once(make) {
  /** @type {Promise<T> | null} */
  let made = null;
  return (...args) => {
    if (made === null) {
      made = make(...args);
      made.catch(() => (made = null));
    }
    return made;
  };
}
