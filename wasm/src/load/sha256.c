/* SHA-256 (FIPS 180-4) of whole blocks, for hosts that have no incremental hash: a browser's
 * own one wants a file in one piece, which would be a second copy of every shard. */
#include "core/base.h"
#include "volery.h"

#define BLOCK_WORDS 16
#define ROUNDS 64

static const uint32_t K[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static inline uint32_t big_endian(const uint8_t *p) {
  return __builtin_bswap32(*(const uint32_t *)__builtin_assume_aligned(p, 1));
}

/* One round; the caller renames the variables instead of moving them. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                               \
  do {                                                                                 \
    const uint32_t t = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +            \
                       (g ^ (e & (f ^ g))) + K[i] + w[(i) % BLOCK_WORDS];              \
    d += t;                                                                            \
    h = t + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) | (c & (a | b))); \
  } while (0)

#define EIGHT_ROUNDS(i)                  \
  do {                                   \
    ROUND(a, b, c, d, e, f, g, h, i);    \
    ROUND(h, a, b, c, d, e, f, g, i + 1); \
    ROUND(g, h, a, b, c, d, e, f, i + 2); \
    ROUND(f, g, h, a, b, c, d, e, i + 3); \
    ROUND(e, f, g, h, a, b, c, d, i + 4); \
    ROUND(d, e, f, g, h, a, b, c, i + 5); \
    ROUND(c, d, e, f, g, h, a, b, i + 6); \
    ROUND(b, c, d, e, f, g, h, a, i + 7); \
  } while (0)

/* The next 16 words of the schedule, in the place of the last 16. */
static inline void extend(uint32_t *w) {
  for (int i = 0; i < BLOCK_WORDS; i++) {
    const uint32_t x = w[(i + 1) % BLOCK_WORDS], y = w[(i + 14) % BLOCK_WORDS];
    const uint32_t s0 = rotate(x, 7) ^ rotate(x, 18) ^ x >> 3;
    const uint32_t s1 = rotate(y, 17) ^ rotate(y, 19) ^ y >> 10;
    w[i] += s0 + w[(i + 9) % BLOCK_WORDS] + s1;
  }
}

static void compress(uint32_t *state, const uint8_t *block) {
  uint32_t w[BLOCK_WORDS];
  for (int i = 0; i < BLOCK_WORDS; i++) w[i] = big_endian(block + 4 * i);
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (int i = 0; i < ROUNDS; i += BLOCK_WORDS) {
    if (i > 0) extend(w);
    EIGHT_ROUNDS(i);
    EIGHT_ROUNDS(i + 8);
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d;
  state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

V_EXPORT(v_sha256) void v_sha256(uint32_t state, uint32_t data, uint32_t blocks) {
  const uint8_t *block = (const uint8_t *)(uintptr_t)data;
  for (uint32_t i = 0; i < blocks; i++) {
    compress((uint32_t *)(uintptr_t)state, block + i * 4 * BLOCK_WORDS);
  }
}
