// Runs op cases on one wasm build with a pool of threads, once per number of threads.
import { WasmExecutor } from "../../../workers/src/executor.js";
import { chooseVariant, loadModule } from "../../../workers/src/wasm/variants.js";
import { base64, bytesOf, jsonOf } from "./files.js";

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
    const executor = await WasmExecutor.create(
      host,
      await bytesOf(source, "program.bin"),
      [shard],
      {
        threads,
        maxTokens: test.max_tokens,
        maxSeqs: test.max_seqs,
        wasm: { variant, module },
      },
    );
    const step = {
      tokenIds: test.token_ids,
      seqs: test.seqs.map(([firstToken, numTokens, contextLen, poolSkip]) => ({
        firstToken,
        numTokens,
        contextLen,
        poolSkip,
      })),
    };
    const outputs = [];
    for (let k = 1; k <= threads; k++) {
      const { output, statuses } = await executor.run(step, { threads: k });
      outputs.push({ threads: k, output: base64(output), statuses: [...statuses] });
    }
    results[name] = { variant: executor.variant, threads: executor.threads, outputs };
    await executor.close();
  }
  return results;
}
