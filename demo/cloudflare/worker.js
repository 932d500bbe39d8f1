/**
 * Embeddings at the edge behind OpenAI's API. One model in the isolate, loaded by the first
 * request from the Worker's own static assets; requests that arrive together share its steps.
 */
import { load, urlSource } from "volery";
import { createHandler } from "volery/serve";

const ASSETS = "https://assets.local/model";

const handler = createHandler({
  models: {
    minilm: (env) => load(urlSource(ASSETS, { fetch: (...args) => env.ASSETS.fetch(...args) })),
  },
});

export default { fetch: (request, env) => handler(request, env) };
