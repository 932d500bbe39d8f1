/**
 * Incremental SHA-256 (FIPS 180-4). WebCrypto only digests whole buffers, which would hold
 * a second copy of every shard whose pieces have no hashes, and it does not exist on insecure
 * origins.
 */

const K = new Int32Array(64);
const INITIAL = new Int32Array(8);
{
  // The constants are the first 32 fractional bits of the cube (square) roots of the first
  // 64 (8) primes.
  const fraction = (/** @type {number} */ x) => Math.floor((x - Math.floor(x)) * 2 ** 32) | 0;
  let found = 0;
  for (let n = 2; found < 64; n++) {
    let prime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) prime = false;
    if (!prime) continue;
    if (found < 8) INITIAL[found] = fraction(Math.sqrt(n));
    K[found++] = fraction(Math.cbrt(n));
  }
}

/**
 * Takes the whole blocks of `data[at .. end - 1]` into `state`, 8 words.
 *
 * @callback Compress
 * @param {Int32Array} state
 * @param {Uint8Array} data
 * @param {number} at
 * @param {number} end
 * @returns {void}
 */

export class Sha256 {
  #compress;
  #state = INITIAL.slice();
  /** The block being filled. */
  #block = new Uint8Array(64);
  #filled = 0;
  #bytes = 0;

  /** @param {Compress} [compress] a faster one, where there is one */
  constructor(compress = compressBlocks) {
    this.#compress = compress;
  }

  /** @param {Uint8Array} data */
  update(data) {
    this.#bytes += data.length;
    let at = 0;
    if (this.#filled > 0) {
      at = Math.min(64 - this.#filled, data.length);
      this.#block.set(data.subarray(0, at), this.#filled);
      this.#filled += at;
      if (this.#filled < 64) return;
      this.#compress(this.#state, this.#block, 0, 64);
    }
    const end = data.length - ((data.length - at) % 64);
    if (at < end) this.#compress(this.#state, data, at, end);
    this.#block.set(data.subarray(end));
    this.#filled = data.length - end;
  }

  /** @returns {string} the digest in lowercase hexadecimal; ends the computation */
  hex() {
    const bits = this.#bytes * 8;
    const tail = new Uint8Array(this.#filled < 56 ? 64 - this.#filled : 128 - this.#filled);
    tail[0] = 0x80;
    const view = new DataView(tail.buffer);
    view.setUint32(tail.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(tail.length - 4, bits % 2 ** 32);
    this.update(tail);
    return Array.from(this.#state, (word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
  }
}

const w = new Int32Array(64);

/** @type {Compress} */
function compressBlocks(state, data, at, end) {
  for (; at < end; at += 64) {
    for (let i = 0, j = at; i < 16; i++, j += 4) {
      w[i] = (data[j] << 24) | (data[j + 1] << 16) | (data[j + 2] << 8) | data[j + 3];
    }
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15];
      const y = w[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
    }
    // Not destructured: the array iterator would cost as much as the 64 rounds.
    let a = state[0];
    let b = state[1];
    let c = state[2];
    let d = state[3];
    let e = state[4];
    let f = state[5];
    let g = state[6];
    let h = state[7];
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + t1) | 0;
      d = c;
      c = b;
      b = a;
      a = (t1 + t2) | 0;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
  }
}
