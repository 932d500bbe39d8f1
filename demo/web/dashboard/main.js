/** Two models on one device, under a load that the reader sets. */
import { Device } from "volery";
import "../shared/dashboard.js";
import {
  at,
  complain,
  loadShown,
  readCorpus,
  readiness,
  say,
  threadsHere,
} from "../shared/page.js";
import { BulkLoad, ChatLoad, SearchLoad } from "./loads.js";

/** Searches may find the device busy for about so long. */
const STEP_TARGET_MS = 15;

async function main() {
  const scheduler = { stepTargetMs: STEP_TARGET_MS };
  const device = new Device({ threads: threadsHere(), scheduler });
  // Models join a device before its first request.
  const embedder = await loadShown("minilm", { device, threads: undefined });
  const writer = await loadShown("smollm2", { device, threads: undefined });
  const passages = await readCorpus();
  say(at("status"), readiness(writer));
  at("embeddings").watch({ stats: () => embedder.stats(), info: embedder.info });
  at("generation").watch({ stats: () => writer.stats(), info: writer.info });

  const note =
    (/** @type {string} */ id) => (/** @type {string} */ label, /** @type {number} */ ms) =>
      at(id).note(label, ms);
  const failed = (/** @type {unknown} */ error) => complain(at("status"), error);
  const searches = new SearchLoad(embedder, passages, note("embeddings"), failed);
  const chats = new ChatLoad(writer, note("generation"), failed);
  const bulk = new BulkLoad(embedder, passages, failed);

  follow("searches", (value) => searches.set(value));
  follow("chats", (value) => chats.set(value));
  at("bulk").addEventListener("change", () => bulk.set(at("bulk").checked));
  bulk.set(at("bulk").checked);
  at("load").disabled = false;
  // For scripts that measure the page.
  Object.assign(globalThis, { voleryDemo: { embedder, writer } });
}

/**
 * Call `set` with a slider's value, now and whenever it moves.
 *
 * @param {string} id
 * @param {(value: number) => void} set
 */
function follow(id, set) {
  const tell = () => {
    at(`${id}-value`).value = at(id).value;
    set(Number(at(id).value));
  };
  at(id).addEventListener("input", tell);
  tell();
}

try {
  await main();
} catch (error) {
  complain(at("status"), error);
}
