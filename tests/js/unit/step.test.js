import assert from "node:assert/strict";
import { test } from "node:test";
import { StepChecker } from "../../../workers/src/step/check.js";
import { StampSet } from "../../../workers/src/step/stamps.js";

const BOUNDS = { vocabSize: 101, maxPositions: 400 };
const LIMITS = { maxTokens: 200, maxSeqs: 6, kvBlocks: 12, maxWanted: 4 };
const checker = new StepChecker(BOUNDS, LIMITS);
const encoder = new StepChecker(BOUNDS, { ...LIMITS, kvBlocks: 0, maxWanted: 0 });

/** A chunk of 40 tokens after 30, a decode at position 32, a prompt of 5. */
const GOOD = {
  tokenIds: Int32Array.from({ length: 46 }, (_, i) => i),
  seqs: [
    { firstToken: 0, numTokens: 40, contextLen: 30 },
    { firstToken: 40, numTokens: 1, contextLen: 32 },
    { firstToken: 41, numTokens: 5 },
  ],
  blockTables: [[3, 1, 4], Int32Array.of(5, 9), [2]],
  copies: [5, 8, 5, 7, 9, 6],
  wanted: [39, 40, 45],
  sampling: [{}, { temperature: 1, seed: 2n ** 64n - 1n }, { topLogprobs: 20 }],
};
const step = (fields) => ({ ...GOOD, ...fields });
const tables = (...blockTables) => step({ blockTables });
const sampled = (row) => step({ sampling: [{}, row, {}] });
const first = (row) => step({ seqs: [{ ...GOOD.seqs[0], ...row }, ...GOOD.seqs.slice(1)] });

/** A mask that allows some of the 101 tokens. */
function mask(...allowed) {
  const words = new Uint32Array(4);
  for (const id of allowed) words[id >> 5] |= 1 << (id & 31);
  return words;
}

test("good steps pass", () => {
  checker.check(GOOD);
  checker.check(step({ sampling: null, wanted: [0, 1, 2, 45] }));
  checker.check(step({ sampling: undefined, wanted: undefined, copies: undefined }));
  // spare ids, a prefix shared by two sequences, a block read while it is written
  checker.check(tables([3, 1, 4, 11, 99], [3, 9], [2]));
  checker.check(tables([3, 1, 4], [3, 0], [2]));
  checker.check(
    sampled({ penalized: [1, 0, 1, 100, 2, 3], bias: [5, -2.5], mask: mask(100), seed: 2 ** 52 }),
  );
  encoder.check({ tokenIds: [1, 2], seqs: [{ firstToken: 0, numTokens: 2, poolSkip: 1 }] });
});

const BAD = {
  "a sequence that is nothing": [step({ seqs: [null, null, null] }), /firstToken of sequence 0/],
  "a sequence skipped whole": [first({ poolSkip: 40 }), /skips 40 of its 40 tokens/],
  "a BigInt id": [step({ tokenIds: [1n, ...GOOD.tokenIds.slice(1)] }), /token 0 .* id 1,/],
  "positions past the last": [first({ contextLen: 361 }), /positions 361 to 400, the model has/],
  "no tables": [tables(), /has 0 tables, expected 3/],
  "tables left out": [step({ blockTables: undefined }), /has 0 tables, expected 3/],
  "a table missing": [tables([3, 1, 4], [5, 9]), /has 2 tables, expected 3/],
  "a short table": [
    tables([3, 1], [5, 9], [2]),
    /table 0 has 2 blocks, expected at least 3 for 70/,
  ],
  "more than the cache": [
    step({
      seqs: [{ firstToken: 0, numTokens: 40, contextLen: 354 }, ...GOOD.seqs.slice(1)],
      blockTables: [[...Array(13).keys()], [5, 9], [2]],
    }),
    /sequence 0 has 394 tokens, expected at most 384/,
  ],
  "a block past the cache": [tables([3, 1, 4], [5, 12], [2]), /table 1 has block 12, .* 0 to 11/],
  "a negative block": [tables([3, 1, 4], [5, 9], [-1]), /table 2 has block -1/],
  "half a block": [tables([3, 1, 4], [5, 0.5], [2]), /table 1 has block 0.5/],
  "a block written by two": [tables([3, 1, 4], [5, 9], [4]), /sequences 0 and 2 .* block 4/],
  "a block written twice": [tables([3, 4, 4], [5, 9], [2]), /sequences 0 and 0 .* block 4/],
  "a copy from nowhere": [step({ copies: [12, 1] }), /copy 0 is from block 12/],
  "a copy to nowhere": [step({ copies: [1, 2, 1, -1] }), /copy 1 is to block -1/],
  "half a copy": [step({ copies: [1, 2, 3] }), /copies has 3 numbers, expected two/],
  "two copies to one block": [step({ copies: [1, 2, 3, 2] }), /copy 1 is to block 2/],
  "a copy of a copy": [step({ copies: [1, 2, 2, 3] }), /copy 0 is to block 2/],
  "a copy onto itself": [step({ copies: [1, 1] }), /copy 0 is to block 1/],
  "too many wanted": [
    step({ wanted: [0, 1, 2, 3, 4], sampling: null }),
    /wanted has 5 rows, expected at most 4/,
  ],
  "a wanted row past the tokens": [step({ wanted: [0, 1, 46] }), /wanted row 2 is token 46/],
  "a negative wanted row": [step({ wanted: [-1, 1, 2] }), /wanted row 0 is token -1/],
  "a row wanted twice": [step({ wanted: [3, 3, 5] }), /row 1 is token 3, expected 4 to 45/],
  "wanted rows that descend": [step({ wanted: [3, 5, 4] }), /row 2 is token 4/],
  "too few sampling rows": [step({ sampling: [] }), /sampling has 0 rows, expected 3/],
  "a penalized id": [sampled({ penalized: [101, 0, 1] }), /penalized has id 101/],
  "a penalized id twice": [sampled({ penalized: [1, 0, 1, 1, 2, 0] }), /id 1 twice/],
  "a penalized count": [sampled({ penalized: [1, 0, -1] }), /count -1/],
  "half a penalized token": [sampled({ penalized: [1, 0] }), /has 2 numbers, expected 3/],
  "a bias id": [sampled({ bias: [5, 1, 101, 1] }), /bias has id 101/],
  "a bias id twice": [sampled({ bias: [5, 1, 6, 1, 5, 1] }), /id 5 twice/],
  "a NaN bias": [sampled({ bias: [5, NaN] }), /bias is NaN/],
  "an infinite bias": [sampled({ bias: [5, -Infinity] }), /bias is -Infinity/],
  "a short mask": [sampled({ mask: new Uint32Array(3) }), /mask has 3 words, expected 4 for 101/],
  "an empty mask": [sampled({ mask: mask() }), /mask allows no token/],
  "a mask of tokens there are not": [sampled({ mask: mask(101, 127) }), /mask allows no token/],
};

const OUT_OF_RANGE = {
  temperature: [-0.1, 1e-9, 1e7, NaN, Infinity, "1"],
  topK: [-1, 2 ** 31, 1.5],
  topP: [0, -1, 1.01, NaN],
  minP: [-0.1, 1.1, NaN],
  repetitionPenalty: [0, -1, 1e4, NaN],
  presencePenalty: [-1001, Infinity, NaN],
  frequencyPenalty: [1001, -Infinity, NaN],
  seed: [-1, -1n, 2n ** 64n, 2 ** 53, 0.5],
  position: [-1, 2 ** 32],
  topLogprobs: [-1, 21, 1.5],
};
for (const [field, values] of Object.entries(OUT_OF_RANGE)) {
  for (const value of values) {
    const words = `sampling row 1: ${field} is ${String(value)}, expected`;
    BAD[`${field} ${String(value)}`] = [sampled({ [field]: value }), new RegExp(escaped(words))];
  }
}

/** @param {string} text */
function escaped(text) {
  return text.replace(/[.+]/g, "\\$&");
}

for (const [name, [bad, words]] of Object.entries(BAD)) {
  test(`refused in one line: ${name}`, () => {
    assert.throws(
      () => checker.check(bad),
      (error) => {
        assert.equal(error.name, "InvalidInput");
        assert.match(error.message, words);
        assert.ok(!error.message.includes("\n"));
        return true;
      },
    );
    checker.check(GOOD); // what a refused step marked is forgotten
  });
}

test("values of another type", () => {
  for (const [bad, words] of [
    [tables({ 0: 3, length: 3 }, [5, 9], [2]), /block table 0 is object/],
    [tables("314", [5, 9], [2]), /block table 0 is string/],
    [step({ wanted: "0" }), /step.wanted is string/],
    [step({ copies: { length: 2 } }), /step.copies is object/],
    [sampled({ mask: [1, 2, 3, 4] }), /mask is object, expected a Uint32Array/],
    [sampled({ penalized: "1" }), /penalized is string/],
    [sampled(null), /sampling row 1 is null/],
  ]) {
    assert.throws(() => checker.check(bad), { name: "InvalidType", message: words });
  }
});

test("lists that do not fit the workspace", () => {
  const small = new StepChecker(
    { vocabSize: 20000, maxPositions: 0 },
    { maxTokens: 9, maxSeqs: 9, kvBlocks: 9, maxWanted: 1 },
  );
  const penalized = Array.from({ length: 3 * 5000 }, (_, i) => (i % 3 ? 0 : i / 3));
  const one = { tokenIds: [1], seqs: [{ firstToken: 0, numTokens: 1 }], blockTables: [[0]] };
  small.check({ ...one, wanted: [0], sampling: [{ penalized: penalized.slice(0, 3 * 1000) }] });
  assert.throws(() => small.check({ ...one, wanted: [0], sampling: [{ penalized }] }), {
    name: "InvalidInput",
    message: /take 15000 words, expected at most 3697/,
  });
});

test("an encoder takes nothing of a decoder", () => {
  const one = { tokenIds: [1], seqs: [{ firstToken: 0, numTokens: 1 }] };
  for (const [fields, words] of [
    [{ blockTables: [[0]] }, /blockTables has 1 entries/],
    [{ copies: [0, 1] }, /copies has 2 entries/],
    [{ wanted: [0] }, /wanted has 1 entries/],
    [{ sampling: [] }, /sampling is given/],
  ]) {
    const bad = { ...one, ...fields };
    assert.throws(() => encoder.check(bad), { name: "InvalidInput", message: words });
  }
  encoder.check({ ...one, blockTables: [], copies: [], wanted: [], sampling: null });
});

test("a set of stamps forgets in constant time", () => {
  const set = new StampSet(3);
  assert.ok(!set.has(1));
  assert.ok(set.add(1));
  assert.ok(!set.add(1));
  assert.ok(set.has(1) && !set.has(0));
  set.clear();
  assert.ok(!set.has(1));
  assert.ok(set.add(1));
});
