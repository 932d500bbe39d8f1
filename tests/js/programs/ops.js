// Runs op cases on one wasm build with a pool of threads, once per number of threads.
import { WasmExecutor } from "../../../workers/src/executor.js";
import { chooseVariant, loadModule } from "../../../workers/src/wasm/variants.js";
import { base64, bytesOf, jsonOf } from "./files.js";
import { stepOf } from "./steps_json.js";

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
