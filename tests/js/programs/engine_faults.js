// What can go wrong around an engine, and how it ends: one scenario by name.

const nameOf = async (promise) => {
  try {
    await promise;
    return "done";
  } catch (error) {
    return error.name;
  }
};

const refusal = async (call) => {
  try {
    await call();
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
  return null;
};

const idle = ({ requests, runningSteps, queuedSeqs, runningSeqs, kv }) =>
  requests + runningSteps + queuedSeqs + runningSeqs === 0 &&
  (kv === null || (kv.sequences === 0 && kv.freeBlocks === kv.numBlocks));

const scenarios = {
  /** Calls that are aborted before, while they wait, and after; others are not affected. */
  async abortEmbed(model) {
    const early = new AbortController();
    early.abort(new Error("too early"));
    const waiting = new AbortController();
    const late = new AbortController();
    const bulk = model.embed(Array(200).fill("some words to embed"));
    const calls = [
      nameOf(model.embed("a", { signal: early.signal })),
      nameOf(model.embed(["b", "c"], { signal: waiting.signal, traffic: "throughput" })),
      nameOf(model.embed("d", { signal: late.signal })),
    ];
    waiting.abort();
    const names = await Promise.all(calls);
    late.abort();
    return { names, rows: (await bulk).length, finished: model.stats().finished };
  },

  async closeEmbed(model) {
    const calls = [model.embed("a"), model.embed(Array(300).fill("b"))].map(nameOf);
    await Promise.all([model.close(), model.close()]);
    return [...(await Promise.all(calls)), await nameOf(model.embed("c"))];
  },

  async drainEmbed(model) {
    const calls = [model.embed("a"), model.embed(Array(100).fill("b"))].map(nameOf);
    await model.close({ drain: true });
    return Promise.all(calls);
  },

  /** A full queue sheds at once, and tells when to come back. */
  async overload(model) {
    const calls = Array.from({ length: 12 }, (_, i) => model.embed(`text ${i}`));
    const settled = await Promise.allSettled(calls);
    const refused = settled.filter((s) => s.status === "rejected").map((s) => s.reason);
    // A list longer than the queue waits for room instead
    const rows = await model.embed(Array(30).fill("x"));
    return {
      names: [...new Set(refused.map((e) => e.name))],
      hints: refused.every((e) => e.retryAfterMs > 0),
      served: settled.length - refused.length,
      rows: rows.length,
    };
  },

  async deadline(model) {
    await model.embed(["warm", "up"]);
    return [
      await nameOf(model.embed("a", { deadlineMs: 1e-6 })),
      await nameOf(model.embed("a", { deadlineMs: 60_000 })),
    ];
  },

  /** Vectors come in the order of a slow source; leaving early stops everything. */
  async stream(model) {
    async function* source(count) {
      for (let i = 0; i < count; i++) {
        if (i % 7 === 0) await null;
        yield `text number ${i}`;
      }
    }
    const texts = Array.from({ length: 50 }, (_, i) => `text number ${i}`);
    const expected = await model.embed(texts);
    let row = 0;
    let equal = true;
    for await (const vector of model.embedStream(source(50), { window: 8 })) {
      equal &&= vector.every((x, i) => x === expected[row][i]);
      row += 1;
    }
    for await (const vector of model.embedStream(source(Infinity), { window: 16 })) {
      if (vector[0] !== undefined && ++row === 60) break;
    }
    await model.embed("let the aborted ones go");
    return { row, equal, idle: idle(model.stats()) };
  },

  async badTexts(model) {
    const calls = [
      [undefined, {}],
      [7, {}],
      [["a", 5], {}],
      [["a", "\ud800"], {}],
      [["a", []], {}],
      [["a", [1, 9999]], {}],
      [["a", [1, 2.5]], {}],
      ["a", { dimensions: 0 }],
      ["a", { dimensions: 1000 }],
      ["a", { normalize: false }],
      ["a", { dtype: "int8" }],
      ["a", { truncate: "start" }],
      ["a", { traffic: "bulk" }],
      ["a", { deadlineMs: 0 }],
      ["a", { deadlineMs: NaN }],
      ["a", { latencyTargetMs: -1 }],
      ["a", { tenant: 5 }],
      ["a", { promptName: "nothing" }],
      ["a", { promptName: "query", prompt: "x" }],
      ["a", { signal: {} }],
      ["a", { prmpt: "x" }],
      ["a", null],
      ["x ".repeat(500), { truncate: "error" }],
    ];
    const refusals = [];
    for (const [texts, options] of calls) {
      refusals.push(await refusal(() => model.embed(texts, options)));
    }
    refusals.push(await refusal(() => model.generate("a")));
    refusals.push(await refusal(() => model.close({ drian: true })));
    return { refusals, idle: idle(model.stats()) };
  },

  /** Streams that are left, aborted, cancelled and closed; their blocks are free again. */
  async leaveStreams(model) {
    const long = { maxTokens: 300, ignoreEos: true };
    for await (const piece of model.generate("leave me", long)) {
      if (piece.text !== undefined) break;
    }
    const controller = new AbortController();
    const seen = [];
    const aborted = await refusal(async () => {
      const stream = model.generate("abort me", { ...long, signal: controller.signal });
      for await (const piece of stream) {
        seen.push(piece.tokenId);
        if (seen.length === 3) controller.abort(new Error("enough"));
      }
    });
    const reader = model.generate("read me", long).readable().getReader();
    const first = await reader.read();
    await reader.cancel();
    const closed = model.generate("close me", long);
    await closed.next();
    closed.close();
    const rest = await closed.next();
    const unread = model.generate("never read", long);
    unread.close();
    const names = [await nameOf(closed.result()), await nameOf(unread.result())];
    await model.generate("let the aborted ones go", { maxTokens: 1 }).result();
    return {
      aborted,
      seen: seen.length,
      first: first.value.index,
      rest: rest.done,
      names,
      finished: model.stats().finished,
      idle: idle(model.stats()),
    };
  },

  async closeStreams(model) {
    const stream = model.generate("a long story", { maxTokens: 300, ignoreEos: true });
    await stream.next();
    const waiting = nameOf(stream.result());
    const other = nameOf(model.generate("another", { maxTokens: 300 }).result());
    await model.close();
    return [await waiting, await other, await refusal(() => model.generate("late"))];
  },

  async twoReaders(model) {
    const stream = model.generate("a", { maxTokens: 4 });
    const names = [nameOf(stream.next()), nameOf(stream.next())];
    return Promise.all(names);
  },

  async mask(model) {
    const only = (...ids) => {
      const mask = new Uint32Array(4);
      for (const id of ids) mask[id >> 5] |= 1 << (id & 31);
      return mask;
    };
    const lengths = [];
    const logitsMask = (ids) => {
      lengths.push(ids.length);
      return ids.length < 4 ? only(10 + ids.length) : null;
    };
    const masked = model.generate("a", { maxTokens: 6, ignoreEos: true, logitsMask }).result();
    const broken = nameOf(
      model.generate("b", { maxTokens: 9, logitsMask: () => "no mask" }).result(),
    );
    const throwing = model.generate("c", {
      maxTokens: 9,
      logitsMask: (ids) => {
        if (ids.length === 2) throw new RangeError("the hook failed");
      },
    });
    const failing = nameOf(throwing.result());
    const others = model.generate("d", { maxTokens: 9, ignoreEos: true }).result();
    return {
      tokenIds: (await masked).completions[0].tokenIds.slice(0, 4),
      lengths,
      broken: await broken,
      throwing: await failing,
      others: (await others).completions[0].tokenIds.length,
      idle: idle(model.stats()),
    };
  },

  async badPrompts(model) {
    const calls = [
      [undefined, {}],
      ["", {}],
      [[], {}],
      [[1, -1], {}],
      [[1, 5000], {}],
      ["a\udc00", {}],
      ["x".repeat(500), {}],
      ["a", { maxTokens: 0 }],
      ["a", { maxTokens: "9" }],
      ["a", { temperature: -1 }],
      ["a", { temperature: NaN }],
      ["a", { temperature: 1e-30 }],
      ["a", { topP: 0 }],
      ["a", { topK: 1000 }],
      ["a", { repetitionPenalty: 0 }],
      ["a", { repetitionPenalty: 1e-5 }],
      ["a", { logitBias: [1] }],
      ["a", { logitBias: { 5000: 1 } }],
      ["a", { logitBias: { a: 1 } }],
      ["a", { logitBias: { "": 1 } }],
      ["a", { logitBias: { "0x5": 1 } }],
      ["a", { logitBias: new Map([[true, 1]]) }],
      [
        "a",
        {
          logitBias: new Map([
            ["5", 1],
            [5, 2],
          ]),
        },
      ],
      ["a", { logprobs: 21 }],
      ["a", { n: 0 }],
      ["a", { seed: -1 }],
      ["a", { seed: 2 ** 53 }],
      ["a", { seed: "7" }],
      ["a", { stop: "" }],
      ["a", { stop: [1] }],
      ["a", { stopTokenIds: [5000] }],
      ["a", { ignoreEos: 1 }],
      ["a", { logitsMask: 1 }],
      ["a", { ttftTargetMs: "fast" }],
      ["a", { cacheSalt: 1 }],
      ["a", { max_tokens: 5 }],
      ["a", null],
      [new DataView(new ArrayBuffer(4)), {}],
    ];
    const hi = { role: "user", content: "hi" };
    const round = { ...hi };
    round.itself = round;
    const asked = [
      null,
      { max_tokens: 5 },
      { tools: 5 },
      { tools: [round] },
      { templateOptions: [] },
      { templateOptions: { big: 5n } },
    ];
    const chats = [
      "hi",
      [],
      ["hi"],
      [{ role: "robot", content: "hi" }],
      [{ role: "user" }],
      [{ role: "user", content: [{ type: "image" }] }],
      [{ role: "tool", content: "hi" }],
      [round],
      [{ ...hi, big: 5n }],
    ];
    const refusals = [];
    for (const [prompt, options] of calls) {
      refusals.push(await refusal(() => model.generate(prompt, options)));
    }
    for (const messages of chats) refusals.push(await refusal(() => model.chat(messages)));
    for (const options of asked) refusals.push(await refusal(() => model.chat([hi], options)));
    for (const id of [-1, 5000, NaN, "5"]) refusals.push(await refusal(() => model.tokenText(id)));
    refusals.push(await refusal(() => model.embed("a")));
    return { refusals, idle: idle(model.stats()) };
  },

  async neverFits(model) {
    return refusal(() => model.generate("a", { n: 100, maxTokens: 2 }).result());
  },
};

export async function main({ volery }, { scenario, artifact, options }) {
  const model = await volery.load(artifact, options);
  try {
    return await scenarios[scenario](model);
  } finally {
    await model.close();
  }
}
