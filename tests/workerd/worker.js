// The Worker under test: one model for all requests, loaded by the first that needs it.
import { kvSource, load, loadModel, once, packSequences, r2Source, urlSource } from "volery";

const sources = {
  assets: (env) =>
    urlSource("http://assets/model", { fetch: (url, init) => env.ASSETS.fetch(url, init) }),
  r2: (env) => r2Source(env.R2, "model/"),
  kv: (env) => kvSource(env.KV, "model/"),
};
const perSource = (load) =>
  Object.fromEntries(
    Object.entries(sources).map(([name, source]) => [name, once((env) => load(source(env)))]),
  );
const hands = perSource(loadModel);
const engines = perSource(load);

const routes = {
  /** Nothing: what the process holds without a model. */
  "/idle": async () => ({}),

  /** One step of the sequences. */
  "/step": async ({ from, sequences }, env) => {
    const model = await hands[from](env);
    const { output } = await model.run(packSequences(sequences));
    const { variant, pool, warnings, memoryBytes, goldens } = model.info;
    return { output: [...output], variant, pool, warnings, memoryBytes, goldens };
  },

  /** Texts through the engine: concurrent requests share its steps. */
  "/embed": async ({ from, texts }, env) => {
    const model = await engines[from](env);
    const { vectors, batchSeqs } = await model.embedWithInfo(texts);
    return { vectors: vectors.map((vector) => [...vector]), batchSeqs };
  },

  "/memory": async ({ from }, env) => (await engines[from](env)).info.memoryBytes,

  /** A load that cannot work. */
  "/broken": async (_, env) => {
    try {
      await loadModel(r2Source(env.R2, "nowhere/"));
    } catch ({ name, message }) {
      return { name, message };
    }
    return {};
  },
};

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    try {
      return Response.json(await routes[pathname](await request.json(), env));
    } catch (error) {
      return new Response(`${error.stack ?? error}`, { status: 500 });
    }
  },
};
