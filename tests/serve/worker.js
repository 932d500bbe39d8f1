// The Worker under test: the models that its bindings name.
import { load, once, urlSource } from "volery";
import { createHandler } from "volery/serve";

const loader = (name) => (env) => {
  const fetch = (url, init) => env.ASSETS.fetch(url, init);
  return load(urlSource(`http://assets/${name}`, { fetch }));
};
const decoder = once(loader("decoder"));
let handler;

/** Without `volery/serve`: the package's own stream as the body of an answer. */
const routes = {
  "/pieces": (model) => {
    const stream = model.generate("hi", { maxTokens: 390, ignoreEos: true, n: 4 });
    const encoder = new TextEncoder();
    const text = new TransformStream({
      transform: (piece, controller) => controller.enqueue(encoder.encode(piece.text)),
    });
    const body = stream.readable().pipeThrough(text).pipeThrough(new IdentityTransformStream());
    return new Response(body);
  },
  "/stats": (model) => Response.json(model.stats()),
};

export default {
  async fetch(request, env) {
    const route = routes[new URL(request.url).pathname];
    if (route !== undefined) return route(await decoder(env));
    handler ??= createHandler({
      models: Object.fromEntries(env.MODELS.split(",").map((name) => [name, loader(name)])),
    });
    return handler(request, env);
  },
};
