/**
 * Embeddings at the edge: one model in the isolate, loaded by the first request from the
 * Worker's own static assets; requests that arrive together share its steps.
 */
import { load, once, urlSource, VoleryError } from "volery";

const model = once((env) =>
  load(
    urlSource("https://assets.local/model", { fetch: (url, init) => env.ASSETS.fetch(url, init) }),
  ),
);

/** HTTP statuses of what can go wrong; everything else is 500. */
const STATUS = { InvalidInput: 400, InvalidType: 400, TooLong: 413, Overloaded: 503 };

/** `POST /v1/embeddings` with `{"input": "text"}` or `{"input": ["text", …]}`. */
async function embeddings(request, env) {
  const { input } = await request.json();
  const { embedWithInfo, info } = await model(env);
  const texts = typeof input === "string" ? [input] : input;
  const { vectors, tokenCounts, batchSeqs } = await embedWithInfo(texts, { truncate: "end" });
  const tokens = tokenCounts.reduce((sum, count) => sum + count, 0);
  return Response.json(
    {
      object: "list",
      model: info.id,
      data: vectors.map((vector, index) => {
        return { object: "embedding", index, embedding: [...vector] };
      }),
      usage: { prompt_tokens: tokens, total_tokens: tokens },
    },
    { headers: { "x-batch-seqs": String(batchSeqs) } },
  );
}

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname !== "/v1/embeddings") return new Response("not found\n", { status: 404 });
    if (request.method !== "POST") {
      return new Response("use POST\n", { status: 405, headers: { allow: "POST" } });
    }
    try {
      return await embeddings(request, env);
    } catch (error) {
      const isOurs = error instanceof VoleryError;
      const status = isOurs ? (STATUS[error.name] ?? 500) : error instanceof SyntaxError ? 400 : 500;
      const message = isOurs || status === 400 ? error.message : "internal error";
      return Response.json({ error: { type: error.name, message } }, { status });
    }
  },
};
