// The Worker under test: the models that its bindings name.
import { load, urlSource } from "volery";
import { createHandler } from "volery/serve";

let handler;

export default {
  fetch(request, env) {
    handler ??= createHandler({
      models: Object.fromEntries(
        env.MODELS.split(",").map((name) => [
          name,
          (env) => {
            const fetch = (url, init) => env.ASSETS.fetch(url, init);
            return load(urlSource(`http://assets/${name}`, { fetch }));
          },
        ]),
      ),
    });
    return handler(request, env);
  },
};
