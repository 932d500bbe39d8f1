/**
 * OpenAI's API at the edge: one model in the isolate, loaded by the first request from the
 * Worker's own static assets; requests that arrive together share its steps.
 */
import { load, urlSource } from "volery";
import { createHandler } from "volery/serve";

const fetch = createHandler({
  models: {
    minilm: (env) => {
      const fetch = (url, init) => env.ASSETS.fetch(url, init);
      return load(urlSource("https://assets.example/model", { fetch }));
    },
  },
});

export default { fetch };
