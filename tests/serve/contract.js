// What a handler does beyond answering: shares steps, sheds, sees clients leave, counts. Prints
// findings by name; runs in Node and in Deno.
import { ArtifactMissing, load } from "volery";
import { createHandler } from "volery/serve";

const isDeno = "Deno" in globalThis;
const input = isDeno
  ? await new Response(Deno.stdin.readable).json()
  : JSON.parse((await import("node:fs")).readFileSync(0, "utf8"));
const { embedder, decoder } = input;

const findings = {};
const post = (handler, path, body, { headers, signal } = {}) =>
  handler(
    new Request(`http://server${path}`, {
      method: "POST",
      body: JSON.stringify(body),
      headers,
      signal,
    }),
  );
const get = (handler, path) => handler(new Request(`http://server${path}`));
const told = async (response) => ({
  status: response.status,
  retryAfter: response.headers.get("retry-after"),
  allow: response.headers.get("allow"),
  ...(await response.json()).error,
});
const story = (extra) => ({
  ...{ model: "decoder", prompt: "hi", max_tokens: 390, temperature: 0, ignore_eos: true },
  ...extra,
});

/** The numbers of `model.stats()` that are zero when nobody wants anything. */
const held = (model) => {
  const { requests, queuedSeqs, queuedTokens, runningSeqs, runningSteps, kv } = model.stats();
  const blocks = kv === null ? 0 : kv.numBlocks - kv.freeBlocks;
  return { requests, queuedSeqs, queuedTokens, runningSeqs, runningSteps, blocks };
};

/** Once the model's last step is over. */
async function settled(model, handler) {
  for (let i = 0; i < 1000 && Object.values(held(model)).some((n) => n > 0); i++) {
    await (await get(handler, "/health")).text();
    await new Promise((resolve) => setTimeout(resolve));
  }
  return held(model);
}

const scenes = {
  async sharing() {
    const model = await load(embedder);
    const handler = createHandler({ models: { embedder: model } });
    const answers = await Promise.all(
      Array.from({ length: 16 }, (_, i) => post(handler, "/v1/embeddings", { input: `text ${i}` })),
    );
    const bodies = await Promise.all(answers.map((answer) => answer.json()));
    const { steps } = model.stats();
    const metrics = await (await get(handler, "/metrics")).text();
    await model.close();
    return { seqs: Math.max(...bodies.map(({ volery }) => volery.batch_seqs)), steps, metrics };
  },

  async generating() {
    const model = await load(decoder);
    const handler = createHandler({ models: { decoder: model } });
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => post(handler, "/v1/completions", story({ max_tokens: 50 }))),
    );
    const bodies = await Promise.all(answers.map((answer) => answer.json()));
    const metrics = await (await get(handler, "/metrics")).text();
    await model.close();
    const texts = new Set(bodies.map(({ choices }) => choices[0].text));
    return {
      seqs: Math.max(...bodies.map((b) => b.volery.batch_seqs)),
      texts: [...texts],
      metrics,
    };
  },

  async overload() {
    const policy = { maxQueueSize: 1 };
    const model = await load(embedder, { scheduler: { latency: policy, throughput: policy } });
    const handler = createHandler({ models: { embedder: model } });
    const send = (input) => post(handler, "/v1/embeddings", { input });
    const many = await Promise.all(Array.from({ length: 8 }, () => send("a")));
    const list = (await send(["a", "b", "c"])).status;
    const answers = await Promise.all(many.map(told));
    const late = await told(
      await post(
        handler,
        "/v1/embeddings",
        { input: "a" },
        {
          headers: { "x-volery-deadline-ms": "0.000001" },
        },
      ),
    );
    const bulk = await post(
      handler,
      "/v1/embeddings",
      { input: "a" },
      {
        headers: { "x-volery-traffic": "throughput", "x-volery-tenant": "someone" },
      },
    );
    const wrong = await told(
      await post(
        handler,
        "/v1/embeddings",
        { input: "a", traffic: "latency" },
        {
          headers: { "x-volery-traffic": "bulk" },
        },
      ),
    );
    await model.close();
    const closed = await told(await send("a"));
    return { answers, list, late, bulk: bulk.status, wrong, closed };
  },

  async leaving() {
    const model = await load(decoder);
    const handler = createHandler({ models: { decoder: model } });
    const found = {};

    const early = new AbortController();
    early.abort();
    const gone = await post(handler, "/v1/completions", story(), { signal: early.signal });
    found.before = (await told(gone)).status;

    const caller = new AbortController();
    const answer = post(handler, "/v1/completions", story({ n: 4 }), { signal: caller.signal });
    while (model.stats().runningSeqs === 0) await new Promise((resolve) => setTimeout(resolve));
    found.busy = model.stats().runningSeqs;
    caller.abort();
    found.during = (await told(await answer)).status;
    found.afterAbort = await settled(model, handler);

    const reader = (
      await post(handler, "/v1/completions", story({ n: 2, stream: true }))
    ).body.getReader();
    await reader.read();
    await reader.cancel();
    found.afterCancel = await settled(model, handler);

    const other = new AbortController();
    const stream = await post(
      handler,
      "/v1/completions",
      story({ stream: true, prompt: ["a", "b"] }),
      {
        signal: other.signal,
      },
    );
    const chunks = stream.body.pipeThrough(new TextDecoderStream()).getReader();
    await chunks.read();
    other.abort();
    let text = "";
    try {
      for (let got = await chunks.read(); !got.done; got = await chunks.read()) text += got.value;
    } catch {
      // A host may end the body of an aborted request with an error
    }
    found.done = text.includes("[DONE]");
    found.afterSignal = await settled(model, handler);
    // Whoever stays is served.
    found.next = (await post(handler, "/v1/completions", story({ max_tokens: 3 }))).status;
    found.metrics = await (await get(handler, "/metrics")).text();
    await model.close();
    return found;
  },

  async loading() {
    const said = [];
    let loads = 0;
    let isThere = false;
    const handler = createHandler({
      models: {
        embedder: async (env) => {
          loads += 1;
          if (!isThere) throw new ArtifactMissing(`there is nothing at ${env}; look elsewhere`);
          return load(embedder);
        },
        broken: () => Promise.reject(new TypeError("a secret of ours")),
      },
      onError: (error) => said.push(error.message),
    });
    const send = (model) =>
      handler(
        new Request("http://server/v1/embeddings", {
          method: "POST",
          body: JSON.stringify({ model, input: "a" }),
        }),
        "home",
      );
    const health = async () => {
      const response = await get(handler, "/health");
      return [response.status, await response.json()];
    };
    const idle = await health();
    const missing = await told(await send("embedder"));
    const failed = await health();
    isThere = true;
    const statuses = (await Promise.all([1, 2, 3, 4].map(() => send("embedder")))).map(
      (r) => r.status,
    );
    const broken = await told(await send("broken"));
    return { idle, missing, failed, statuses, loads, broken, said };
  },

  async transport() {
    const model = await load(embedder);
    const handler = createHandler({ models: { embedder: model }, maxBodyBytes: 1000 });
    const large = await told(await post(handler, "/v1/embeddings", { input: "a".repeat(2000) }));
    const chunked = new Request("http://server/v1/embeddings", {
      method: "POST",
      duplex: "half",
      body: new ReadableStream({
        pull: (controller) => controller.enqueue(new Uint8Array(300).fill(32)),
      }),
    });
    const endless = await told(await handler(chunked));
    const method = await told(await get(handler, "/v1/embeddings"));
    const path = await told(await get(handler, "/v1/engines"));
    const slash = (await post(handler, "/v1/embeddings/", { input: "a" })).status;
    await model.close();
    const refusals = [undefined, {}, { models: {} }, { models: { a: 5 } }].map((options) => {
      try {
        createHandler(options);
        return null;
      } catch ({ name, message }) {
        return `${name}: ${message}`;
      }
    });
    return { large, endless, method, path, slash, refusals };
  },

  /** A worker dies under a request (Node); the next one finds a new one. */
  async losing() {
    if (isDeno) return null;
    const workers = [];
    process.on("worker", (worker) => workers.push(worker));
    const models = [];
    const handler = createHandler({
      models: {
        embedder: async () => {
          models.push(await load(embedder, { threads: 2 }));
          return models.at(-1);
        },
      },
      onError: () => {},
    });
    const send = () => post(handler, "/v1/embeddings", { input: "a" });
    const before = (await send()).status;
    const [, ...deaths] = await Promise.all([
      Promise.all(workers.map((worker) => worker.terminate())),
      ...Array.from({ length: 20 }, async () => told(await send())),
    ]);
    const lost = deaths.filter(({ status }) => status !== 200);
    const after = (await send()).status;
    await Promise.all(models.map((model) => model.close()));
    return { before, lost, after, loads: models.length };
  },
};

for (const [name, scene] of Object.entries(scenes)) findings[name] = await scene();
console.log(JSON.stringify(findings));
