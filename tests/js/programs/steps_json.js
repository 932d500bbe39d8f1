// Steps as tests/ops/write_cases.py spells them.

/** A step as `write_cases.py` spells it. */
export function stepOf({ token_ids, seqs, block_tables, copies, wanted, sampling }) {
  const rows = seqs.map(([firstToken, numTokens, contextLen, poolSkip]) => ({
    firstToken,
    numTokens,
    contextLen,
    poolSkip,
  }));
  const step = { tokenIds: token_ids, seqs: rows };
  if (block_tables === undefined) return step;
  return {
    ...step,
    blockTables: block_tables,
    copies: copies.flat(),
    wanted,
    sampling: sampling && sampling.map(samplingRowOf),
  };
}

function samplingRowOf(row) {
  return {
    temperature: row.temperature,
    topK: row.top_k,
    topP: row.top_p,
    minP: row.min_p,
    repetitionPenalty: row.repetition_penalty,
    presencePenalty: row.presence_penalty,
    frequencyPenalty: row.frequency_penalty,
    penalized: row.penalized.flat(),
    bias: row.bias.flat(),
    mask: row.mask && Uint32Array.from(row.mask),
    seed: BigInt(row.seed),
    position: row.position,
    topLogprobs: row.top_logprobs,
  };
}
