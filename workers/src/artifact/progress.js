/** Overall progress of a load, from the sizes in the manifest. */

/**
 * @typedef {object} Progress
 * @property {number} loadedBytes bytes read so far, of every file together
 * @property {number} totalBytes what loading will read, from the manifest
 * @property {string} file the file being read
 */

export class LoadProgress {
  #tell;
  #total = 0;
  #most = 0;
  /** Bytes read of each file. @type {Map<string, number>} */
  #loaded = new Map();

  /** @param {((progress: Progress) => void) | undefined} tell */
  constructor(tell) {
    this.#tell = tell;
  }

  /**
   * Count a file.
   *
   * @param {string} name
   * @param {number} bytes
   */
  expect(name, bytes) {
    if (!this.#loaded.has(name)) this.#total += bytes;
    this.#loaded.set(name, 0);
  }

  /**
   * @param {string} file
   * @param {number} bytes read of it so far
   */
  update(file, bytes) {
    if (!this.#loaded.has(file)) return;
    this.#loaded.set(file, bytes);
    const loadedBytes = [...this.#loaded.values()].reduce((sum, n) => sum + n, 0);
    // A file that is read again does not take the bar back.
    if (loadedBytes <= this.#most) return;
    this.#most = loadedBytes;
    this.#tell?.({ loadedBytes, totalBytes: this.#total, file });
  }
}
