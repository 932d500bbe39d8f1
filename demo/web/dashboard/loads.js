/** The three kinds of load: searches that come by chance, conversations, a bulk job. */
import { embedAgainAndAgain } from "../shared/bulk.js";

/** @typedef {import("../shared/page.js").Model} Model */
/** @typedef {(label: string, milliseconds: number) => void} Note takes a latency */
/** @typedef {(error: unknown) => void} Failed */

const ANSWER = { maxTokens: 80, temperature: 0.8, topP: 0.9 };
const QUESTIONS = [
  "Why do birds migrate?",
  "Tell me about herons.",
  "How does a wing lift a bird?",
  "Write a line about the sea at night.",
  "What do owls eat?",
];

/** Single texts in the latency class; their arrivals are a Poisson process. */
export class SearchLoad {
  #perSecond = 0;
  #timer = 0;

  /** @param {Model} model @param {string[]} texts @param {Note} note @param {Failed} failed */
  constructor(model, texts, note, failed) {
    this.model = model;
    this.texts = texts;
    this.note = note;
    this.failed = failed;
  }

  /** @param {number} perSecond */
  set(perSecond) {
    this.#perSecond = perSecond;
    this.#next();
  }

  #next() {
    clearTimeout(this.#timer);
    if (this.#perSecond === 0) return;
    const wait = (-Math.log(1 - Math.random()) / this.#perSecond) * 1000;
    this.#timer = setTimeout(() => {
      this.#search().catch(this.failed);
      this.#next();
    }, wait);
  }

  async #search() {
    const words = pick(this.texts).split(" ").slice(0, 6).join(" ");
    const start = performance.now();
    await this.model.embed(words, { traffic: "latency" });
    this.note("Search", performance.now() - start);
  }
}

/** So many conversations; each asks again when it has its answer. */
export class ChatLoad {
  /** @type {AbortController[]} */
  #conversations = [];

  /** @param {Model} model @param {Note} note @param {Failed} failed */
  constructor(model, note, failed) {
    this.model = model;
    this.note = note;
    this.failed = failed;
  }

  /** @param {number} count */
  set(count) {
    while (this.#conversations.length > count) this.#conversations.pop()?.abort();
    while (this.#conversations.length < count) {
      const mine = new AbortController();
      this.#conversations.push(mine);
      this.#talk(mine.signal).catch((error) => mine.signal.aborted || this.failed(error));
    }
  }

  /** @param {AbortSignal} signal */
  async #talk(signal) {
    while (!signal.aborted) {
      const messages = [{ role: "user", content: pick(QUESTIONS) }];
      let last = performance.now();
      let first = true;
      for await (const _ of this.model.chat(messages, { ...ANSWER, signal })) {
        const now = performance.now();
        this.note(first ? "First token" : "Per token", now - last);
        first = false;
        last = now;
      }
    }
  }
}

/** A corpus, again and again, in the throughput class. */
export class BulkLoad {
  /** @type {AbortController | null} */
  #running = null;

  /** @param {Model} model @param {string[]} texts @param {Failed} failed */
  constructor(model, texts, failed) {
    this.model = model;
    this.texts = texts;
    this.failed = failed;
  }

  /** @param {boolean} on */
  set(on) {
    this.#running?.abort();
    this.#running = on ? new AbortController() : null;
    if (this.#running === null) return;
    embedAgainAndAgain(this.model, this.texts, this.#running.signal).catch(this.failed);
  }
}

/** @template T @param {readonly T[]} items */
const pick = (items) => items[Math.floor(Math.random() * items.length)];
