/** Several chats on one model: the batching core computes their tokens together. */
import "../shared/dashboard.js";
import { at, complain, loadShown, readiness, say } from "../shared/page.js";
import { Conversation } from "./conversation.js";

const STARTERS = [
  "Why is the sky blue?",
  "Write two lines about a heron at dawn.",
  "Name three birds that cannot fly.",
  "How do I keep a sourdough starter alive?",
];
const AT_FIRST = 3;

/** @type {Conversation[]} */
const conversations = [];

async function main() {
  const model = await loadShown("smollm2");
  say(at("status"), readiness(model));
  at("dashboard").watch({ stats: () => model.stats(), info: model.info });

  const addOne = () => {
    const number = conversations.length + 1;
    const conversation = new Conversation(model, {
      title: `Conversation ${number}`,
      starter: STARTERS[conversations.length % STARTERS.length],
      note: (label, ms) => at("dashboard").note(label, ms),
      changed: () => (at("stop-all").disabled = !conversations.some((c) => c.busy)),
    });
    conversations.push(conversation);
    at("conversations").append(conversation.element);
    return conversation;
  };
  for (let i = 0; i < AT_FIRST; i++) addOne();
  conversations[0].input.focus();

  const askAll = () => conversations.forEach((c) => c.ask());
  const stopAll = () => conversations.forEach((c) => c.stop());
  const addAndGo = () => addOne().input.focus();
  at("ask-all").addEventListener("click", askAll);
  at("stop-all").addEventListener("click", stopAll);
  at("add").addEventListener("click", addAndGo);
  at("ask-all").disabled = at("add").disabled = false;
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") stopAll();
    if (!event.altKey || !["KeyA", "KeyN"].includes(event.code)) return;
    event.preventDefault();
    (event.code === "KeyA" ? askAll : addAndGo)();
  });
  // For scripts that measure the page.
  Object.assign(globalThis, { voleryDemo: { model, conversations } });
}

try {
  await main();
} catch (error) {
  complain(at("status"), error);
}
