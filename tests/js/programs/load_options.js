// Options of `load` that are wrong: each refused before anything is fetched or started.
export async function main({ volery }) {
  let opened = 0;
  const source = {
    location: "nowhere",
    async open() {
      opened += 1;
      throw new volery.ArtifactMissing("there is nothing");
    },
  };
  const wrong = [
    null,
    "fast",
    { thread: 2 },
    { threads: 1e9 },
    { threads: "2" },
    { threads: NaN },
    { signal: {} },
    { onProgress: 5 },
    { share: 0 },
    { recorder: {} },
    { tokenizer: {} },
    { cache: true },
    { worker: 5 },
    { wasm: 5 },
    { wasm: { varaint: "simd" } },
  ];
  const refusals = [];
  for (const options of wrong) {
    refusals.push(
      await volery.load(source, options).then(
        () => null,
        ({ name, message }) => `${name}: ${message}`,
      ),
    );
  }
  refusals.push(
    await volery.loadModel(source, { threads: 1e9 }).then(
      () => null,
      ({ name, message }) => `${name}: ${message}`,
    ),
  );
  const good = { signal: undefined, onProgress: () => {}, cache: null, threads: 1 };
  const { name } = await volery.load(source, good).catch((error) => error);
  return { refusals, good: name, opened };
}
