/** From an artifact to a running model. */
import { ChatTemplate } from "./chat/template.js";
import { HFTokenizer } from "./embedding/tokenizer.js";
import { hostClock } from "./engine/clock.js";
import { Device } from "./engine/device.js";
import { Engine } from "./engine/engine.js";
import { costProfile } from "./engine/profile.js";
import { ArtifactUnsupported, InvalidInput } from "./errors.js";
import { Generator } from "./generation/generator.js";
import { HFTextTokenizer } from "./generation/tokenizer.js";
import { checkLoadOptions } from "./load-options.js";
import { Model } from "./model.js";

/** @typedef {import("./batching/config.js").SchedulerOptions} SchedulerOptions */
/** @typedef {import("./batching/core.js").Recorder} Recorder */
/** @typedef {import("./embedding/tokenizer.js").Tokenizer} Tokenizer */
/** @typedef {import("./generation/tokenizer.js").TextTokenizer} TextTokenizer */
/** @typedef {import("./hands.js").LoadOptions} HandsOptions */
/** @typedef {import("./hands.js").Model} StepModel */
/** @typedef {import("./model.js").ModelFacts} ModelFacts */

/**
 * @typedef {object} EngineLoadOptions
 * @property {SchedulerOptions} [scheduler] knobs of the scheduler
 * @property {Recorder} [recorder] records every scheduling decision
 * @property {Device} [device] threads and scheduler shared with other models; `threads`,
 *   `scheduler` and `recorder` are then the device's own
 * @property {number} [share] weight of this model's bulk work against that of others on the
 *   device
 * @property {Tokenizer | TextTokenizer} [tokenizer] instead of the artifact's
 *   `tokenizer.json`: a `Tokenizer` to embed, a `TextTokenizer` to generate
 */

/** @typedef {Omit<HandsOptions, "files" | "prepare"> & EngineLoadOptions} LoadOptions */

/**
 * @typedef {object} Words what turns text into tokens
 * @property {Tokenizer} [tokenizer] of an encoder
 * @property {TextTokenizer} [textTokenizer] of a decoder
 * @property {ChatTemplate | null} [template] of a decoder that has one
 */

const TOKENIZER = "tokenizer.json";

/**
 * A host's `load`.
 *
 * @param {(from: unknown, options: HandsOptions) => Promise<StepModel>} loadModel the host's
 * @param {() => import("./engine/clock.js").Clock} [clockOf] the time of a new device
 */
export function createEngineLoader(loadModel, clockOf = () => hostClock) {
  /**
   * Load an artifact, prove that this host computes its goldens, and start an engine.
   *
   * @param {unknown} source a URL or path of the artifact's folder, its files' bytes by name
   *   (an object or a Map), or any `Source`
   * @param {LoadOptions} [options]
   * @returns {Promise<Model>}
   * @throws {ArtifactError} missing, corrupt or unsupported artifact, or goldens missed
   * @throws {InvalidInput} an option is out of range
   * @throws {OutOfMemory} the host cannot hold the model
   * @throws {Aborted} `options.signal` fired
   */
  return async function load(source, options = {}) {
    checkLoadOptions(options);
    const { scheduler, recorder, device: shared, share = 1, tokenizer, ...hands } = options;
    const clock = clockOf();
    const device = shared ?? new Device({ threads: hands.threads, scheduler, recorder, clock });
    if (shared !== undefined) checkShared(shared, options);
    const { threads } = device;
    const start = performance.now();
    /** @type {Words} */
    let words = {};
    const backend = await loadModel(source, {
      ...hands,
      threads,
      files: (manifest) => filesOf(manifest, tokenizer === undefined),
      prepare: (files, manifest) => void (words = wordsOf(files, manifest, tokenizer)),
    });
    try {
      return started(backend, words, { device, alone: shared === undefined, share, start });
    } catch (error) {
      await backend.close();
      throw error;
    }
  };
}

/**
 * @param {Device} device
 * @param {LoadOptions} options
 */
function checkShared(device, { threads, scheduler, recorder }) {
  if (!(device instanceof Device)) {
    throw new InvalidInput("device is no Device, expected one that `new Device()` made");
  }
  const own = threads !== undefined && threads !== device.threads;
  if (own || scheduler !== undefined || recorder !== undefined) {
    throw new InvalidInput(
      "threads, scheduler and recorder belong to the device; set them where it is made",
    );
  }
  device.checkJoinable();
}

/**
 * @param {Record<string, any>} manifest
 * @param {boolean} ownTokenizer the artifact's is wanted
 */
function filesOf({ generation }, ownTokenizer) {
  const files = ownTokenizer ? [TOKENIZER] : [];
  if (generation?.chat_template) files.push(generation.chat_template);
  return files;
}

/**
 * @param {ReadonlyMap<string, Uint8Array>} files
 * @param {Record<string, any>} manifest
 * @param {Tokenizer | TextTokenizer} [own] the caller's
 * @returns {Words}
 */
function wordsOf(files, manifest, own) {
  const file = (/** @type {string} */ name) => /** @type {Uint8Array} */ (files.get(name));
  const { generation, embedding } = manifest;
  if (embedding) {
    const tokenizer = /** @type {Tokenizer | undefined} */ (own);
    return { tokenizer: tokenizer ?? new HFTokenizer(file(TOKENIZER), maxTokensOf(manifest)) };
  }
  if (!generation) return {};
  const { bos_token: bosToken, eos_token: eosToken, chat_template: name } = generation;
  const source = name ? new TextDecoder().decode(file(name)) : null;
  const tokenizer = /** @type {TextTokenizer | undefined} */ (own);
  return {
    textTokenizer: tokenizer ?? new HFTextTokenizer(file(TOKENIZER)),
    template: source === null ? null : new ChatTemplate(source, { bosToken, eosToken }),
  };
}

/**
 * @param {StepModel} backend
 * @param {Words} words
 * @param {object} options
 * @param {Device} options.device
 * @param {boolean} options.alone
 * @param {number} options.share
 * @param {number} options.start
 */
function started(
  backend,
  { tokenizer, textTokenizer, template = null },
  { device, alone, share, start },
) {
  const { manifest, limits, outputWidth } = backend.info;
  const { generation } = manifest;
  const isDecoder = limits.kvBlocks > 0;
  if (isDecoder ? !textTokenizer : !tokenizer) {
    const expected = isDecoder ? "generate" : "embed";
    throw new ArtifactUnsupported(
      `the artifact's tasks are ${JSON.stringify(manifest.tasks)}, expected "${expected}" among ` +
        "them; export the model again",
    );
  }
  const engineOf = () =>
    new Engine(backend, {
      width: isDecoder ? 0 : outputWidth,
      profile: costProfile(manifest.cost_profile?.coefficients_ns),
      maxContext: isDecoder ? Number(generation.max_context) || 0 : 0,
      device,
      alone,
      name: alone ? "" : String(manifest.model?.id ?? ""),
      share,
    });
  if (tokenizer) {
    const engine = engineOf();
    const facts = factsOf(backend, { maxTokens: tokenizer.maxTokens, maxContext: 0, start });
    return new Model(engine, facts, { tokenizer });
  }
  const engine = engineOf();
  const { maxContext } = engine;
  const info = {
    vocabSize: outputWidth,
    maxContext,
    eosTokenIds: /** @type {number[]} */ (generation.eos_token_ids ?? []),
    chat: template !== null,
  };
  const words = /** @type {TextTokenizer} */ (textTokenizer);
  const generator = new Generator(engine, words, info, template);
  const facts = factsOf(backend, { maxTokens: maxContext - 1, maxContext, start });
  return new Model(engine, facts, { generator });
}

/** @param {Record<string, any>} manifest */
function maxTokensOf({ limits }) {
  const maxTokens = Number(limits?.max_tokens);
  if (Number.isInteger(maxTokens) && maxTokens > 0) return maxTokens;
  throw new ArtifactUnsupported(
    `manifest.json has limits.max_tokens ${String(limits?.max_tokens)}, expected a whole number; ` +
      "export the model again",
  );
}

/**
 * @param {StepModel} backend
 * @param {{maxTokens: number, maxContext: number, start: number}} found
 * @returns {ModelFacts}
 */
function factsOf(backend, { maxTokens, maxContext, start }) {
  const { manifest, variant, threads, limits, vocabSize, memoryBytes, warnings } = backend.info;
  const embedding = manifest.embedding ?? {};
  return {
    id: String(manifest.model?.id ?? ""),
    tasks: manifest.tasks ?? [],
    dimensions: embedding.dimensions ?? 0,
    normalized: embedding.normalized ?? false,
    maxTokens,
    maxContext,
    vocabSize,
    includePrompt: embedding.include_prompt ?? true,
    prompts: embedding.prompts ?? {},
    defaultPromptName: embedding.default_prompt_name ?? null,
    quantization: manifest.quantization?.name ?? "f32",
    variant,
    threads,
    limits,
    memoryBytes,
    loadMs: performance.now() - start,
    warnings,
  };
}
