// Runs op cases on one wasm build with a pool of threads, once per number of threads.
import { WasmExecutor } from "../../../workers/src/executor.js";
import { chooseVariant, loadModule } from "../../../workers/src/wasm/variants.js";
import { base64, bytesOf, jsonOf } from "./files.js";

/** A step as `write_cases.py` spells it. */
function stepOf({ token_ids, seqs, block_tables, copies, wanted, sampling }) {
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

/** The bytes of everything that a step gave. */
function resultOf({ output, statuses, sampled }, threads) {
  const result = { threads, output: base64(output), statuses: [...statuses] };
  if (sampled === null) return result;
  const rows = (of) => Array.from(sampled.top, of);
  return {
    ...result,
    sampled: {
      tokenIds: [...sampled.tokenIds],
      logprobs: base64(sampled.logprobs),
      topIds: rows((top) => [...top.tokenIds]),
      topLogprobs: rows((top) => base64(top.logprobs)),
    },
  };
}

export async function main({ host }, { folders, variant, threads }) {
  const results = {};
  const build = chooseVariant(threads > 1, { variant });
  const module = await loadModule(build, {}, host.readFile);
  for (const [name, folder] of Object.entries(folders)) {
    const source = host.source(folder);
    const test = await jsonOf(source, "case.json");
    const weights = await bytesOf(source, "weights.safetensors");
    const shard = {
      name: "weights.safetensors",
      bytes: weights.length,
      // Odd chunks, so that rows, parts and the header are cut everywhere.
      async *open() {
        for (let at = 0, size = 1; at < weights.length; at += size, size = (size * 3) % 1021) {
          yield weights.subarray(at, at + size);
        }
      },
    };
    const program = await bytesOf(source, "program.bin");
    const executor = await WasmExecutor.create(host, program, [shard], {
      threads,
      maxTokens: test.max_tokens,
      maxSeqs: test.max_seqs,
      kvBlocks: test.kv_blocks,
      kvFormat: test.kv_format,
      maxWanted: test.max_wanted,
      wasm: { variant, module },
    });
    const steps = (test.steps ?? [test]).map(stepOf);
    const outputs = [];
    for (let k = 1; k <= threads; k++) {
      for (const step of steps) outputs.push(resultOf(await executor.run(step, { threads: k }), k));
    }
    results[name] = { variant: executor.variant, threads: executor.threads, outputs };
    await executor.close();
  }
  return results;
}
