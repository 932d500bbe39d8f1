/** The models that are served: by name, each loaded when the first request asks for it. */
import { InvalidInput, InvalidType } from "../errors.js";
import { kindOf } from "../checks.js";
import { HttpError } from "./errors.js";

/** @typedef {import("../model.js").Model} Model */

/**
 * Makes a model with what the host hands to its `fetch` handler; called once, and again after
 * a failure or when the model's backend died.
 *
 * @typedef {(env: any) => Promise<Model>} ModelLoader
 */

/** @typedef {"idle" | "loading" | "ready" | "failed"} ModelState */

/** @typedef {<A extends unknown[], T>(make: (...args: A) => Promise<T>) => (...args: A) => Promise<T>} Once */

/** One name. */
export class Served {
  /** @type {ModelState} */
  state = "idle";
  /** @type {Model | null} */
  model = null;
  /** When it was loaded, or the handler made, in seconds since 1970. */
  created = Math.floor(Date.now() / 1000);
  /** The model, loaded by now. @type {ModelLoader} */
  get;
  /** @type {(() => ModelLoader) | null} */
  #fresh = null;

  /**
   * @param {string} name
   * @param {Model | ModelLoader} source
   * @param {Once} once
   */
  constructor(name, source, once) {
    this.name = name;
    if (typeof source === "function") {
      this.#fresh = () => once((env) => this.#load(source, env));
      this.get = this.#fresh();
    } else {
      this.get = async () => source;
      this.state = "ready";
      this.model = source;
    }
  }

  /**
   * The model's backend died: the next request loads it again, if it was loaded here.
   *
   * @param {Model} model
   */
  lost(model) {
    if (this.#fresh === null || this.model !== model) return;
    this.state = "idle";
    this.model = null;
    this.get = this.#fresh();
    // Others of its requests may be helped by a backend of its own
    void model.close({ drain: true }).catch(() => {});
  }

  /**
   * @param {ModelLoader} source
   * @param {unknown} env
   */
  async #load(source, env) {
    this.state = "loading";
    try {
      this.model = await source(env);
    } catch (error) {
      this.state = "failed";
      throw error;
    }
    this.state = "ready";
    return this.model;
  }
}

/** All names. */
export class Models {
  /** @type {Map<string, Served>} */
  #served;

  /**
   * @param {Record<string, Model | ModelLoader>} models
   * @param {Once} once
   * @throws {InvalidInput} there is none, or one is neither a model nor a function
   */
  constructor(models, once) {
    if (typeof models !== "object" || models === null) {
      throw new InvalidType(`models is ${kindOf(models)}, expected an object of name: model`);
    }
    const entries = Object.entries(models);
    if (entries.length === 0) throw new InvalidInput("models is empty, expected at least one");
    for (const [name, model] of entries) {
      if (typeof model === "function" || typeof model?.stats === "function") continue;
      throw new InvalidType(
        `models[${JSON.stringify(name)}] is ${kindOf(model)}, expected a loaded model or a ` +
          "function that loads one",
      );
    }
    this.#served = new Map(entries.map(([name, m]) => [name, new Served(name, m, once)]));
  }

  /** @returns {readonly Served[]} */
  get all() {
    return [...this.#served.values()];
  }

  /**
   * The model that a request asks for, loaded.
   *
   * @param {unknown} name of the request; a lone model, or the only one of its task, needs none
   * @param {"embed" | "generate"} task
   * @param {unknown} env
   * @returns {Promise<{served: Served, model: Model}>}
   * @throws {HttpError} 404: there is none of that name; 400: it cannot do that
   */
  async find(name, task, env) {
    const served = this.#named(name, task);
    const model = await served.get(env);
    if (task === "embed" ? model.info.dimensions === 0 : model.info.maxContext === 0) {
      const can = task === "embed" ? "generates text, it makes no embeddings" : "makes embeddings";
      throw new HttpError(400, "wrong_task", `the model ${served.name} ${can}; use another one`, {
        param: "model",
      });
    }
    return { served, model };
  }

  /**
   * @param {unknown} name
   * @param {"embed" | "generate"} task
   * @returns {Served}
   */
  #named(name, task) {
    if (typeof name === "string") {
      const served = this.#served.get(name);
      if (served !== undefined) return served;
    } else if (name !== undefined && name !== null) {
      throw new HttpError(400, "invalid_value", `model is ${kindOf(name)}, expected a string`, {
        param: "model",
      });
    } else {
      const able = this.all.filter(({ model }) => {
        return model === null || (task === "embed" ? model.info.dimensions : model.info.maxContext);
      });
      if (able.length === 1) return able[0];
    }
    const known = [...this.#served.keys()].join(", ");
    const found = typeof name === "string" ? JSON.stringify(name.slice(0, 100)) : "missing";
    throw new HttpError(404, "model_not_found", `model is ${found}, expected one of ${known}`, {
      param: "model",
    });
  }
}

/**
 * A model as `GET /v1/models` shows it.
 *
 * @param {Served} served
 */
export function describe({ name, created, state, model }) {
  const info = model?.info;
  return {
    id: name,
    object: "model",
    created,
    owned_by: "volery",
    volery: {
      state,
      ...(info && {
        model_id: info.id,
        tasks: info.tasks,
        ...(info.dimensions > 0
          ? { dimensions: info.dimensions, max_tokens: info.maxTokens }
          : { max_context: info.maxContext }),
        quantization: info.quantization,
        variant: info.variant,
        threads: info.threads,
        memory_bytes: info.memoryBytes.total,
      }),
    },
  };
}
