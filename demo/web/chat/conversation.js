/** One conversation: its column on the page, its messages, the answer that streams in. */
import { at, inWords } from "../shared/page.js";

const OPTIONS = { maxTokens: 160, temperature: 0.7, topP: 0.9, repetitionPenalty: 1.1 };

/**
 * @typedef {object} Surroundings
 * @property {string} title
 * @property {string} starter a first message, ready to be sent
 * @property {(label: string, milliseconds: number) => void} note takes a latency
 * @property {() => void} changed an answer began or ended
 */

export class Conversation {
  /** @type {{role: string, content: string}[]} */
  #messages = [];
  /** @type {AbortController | null} */
  #answering = null;

  /**
   * @param {import("../shared/page.js").Model} model
   * @param {Surroundings} surroundings
   */
  constructor(model, { title, starter, note, changed }) {
    this.model = model;
    this.note = note;
    this.changed = changed;
    this.element = at("conversation").content.firstElementChild.cloneNode(true);
    this.log = this.element.querySelector(".log");
    this.input = this.element.querySelector("input");
    this.facts = this.element.querySelector(".facts");
    this.element.querySelector(".title").textContent = title;
    this.element.setAttribute("aria-label", title);
    this.log.setAttribute("aria-label", `Messages of ${title}`);
    this.input.setAttribute("aria-label", `Message to ${title}`);
    this.input.value = starter;
    this.element.querySelector("form").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      this.ask();
    });
  }

  get busy() {
    return this.#answering !== null;
  }

  stop() {
    this.#answering?.abort();
  }

  /** Send what is typed, and stream the answer. */
  async ask() {
    const content = this.input.value.trim();
    if (!content || this.busy) return;
    const mine = (this.#answering = new AbortController());
    this.element.classList.add("busy");
    this.changed();
    this.input.value = "";
    this.#messages.push({ role: "user", content });
    this.#line("user").textContent = content;
    const line = this.#line("assistant");
    try {
      await this.#stream(line, mine.signal);
      this.#messages.push({ role: "assistant", content: line.textContent ?? "" });
    } catch (error) {
      // The model has not answered: the next message does not follow this one.
      this.#messages.pop();
      line.classList.add(mine.signal.aborted ? "stopped" : "failed");
      line.append(mine.signal.aborted ? " (stopped)" : inWords(error));
    } finally {
      this.#answering = null;
      this.element.classList.remove("busy");
      this.changed();
    }
  }

  /** @param {HTMLElement} line @param {AbortSignal} signal */
  async #stream(line, signal) {
    const stream = this.model.chat(this.#messages, { ...OPTIONS, signal });
    const start = performance.now();
    let first = 0;
    let last = 0;
    let tokens = 0;
    for await (const { text } of stream) {
      const now = performance.now();
      tokens += 1;
      if (tokens === 1) this.note("First token", (first = now) - start);
      else this.note("Per token", now - last);
      last = now;
      line.append(text);
      this.log.scrollTop = this.log.scrollHeight;
      if (tokens > 1) this.#tell(tokens, (1000 * (tokens - 1)) / (now - first));
    }
    const { batchSeqs } = await stream.result();
    this.facts.textContent += `, batch of ${batchSeqs}`;
  }

  /** @param {number} tokens @param {number} rate */
  #tell(tokens, rate) {
    this.facts.textContent = `${tokens} tokens, ${rate.toFixed(1)}/s`;
  }

  /** @param {string} who */
  #line(who) {
    const line = document.createElement("p");
    line.className = who;
    this.log.append(line);
    this.log.scrollTop = this.log.scrollHeight;
    return line;
  }
}
