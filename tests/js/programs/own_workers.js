// Workers that the caller names or makes.
export async function main({ volery, host, makeWorker }, { artifact, sequences }) {
  const url = new URL(`../../../workers/src/pool/${makeWorker.script}`, import.meta.url);
  let made = 0;
  const load = async (worker) => {
    const model = await volery.loadModel(artifact, { threads: 2, worker });
    await model.run(volery.packSequences(sequences));
    await model.close();
    return model.info.warnings.filter((warning) => !warning.includes("COOP"));
  };
  return {
    url: await load(url),
    function: await load(() => (made++, makeWorker(url))),
    made,
  };
}
