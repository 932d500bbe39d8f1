/** An editor of Python programs that run in this page. */
import "../shared/dashboard.js";
import { at, complain, say } from "../shared/page.js";
import { startPython } from "./python.js";
import { SNIPPETS } from "./snippets.js";

const MAC = navigator.platform.startsWith("Mac");

async function main() {
  showSnippets();
  const python = await startPython({
    print: (line) => print(line),
    watch: (model) => at("dashboard").watch(model),
  });
  say(at("status"), `Python ${python.version} with volery is ready.`);
  at("run").disabled = false;

  const run = async () => {
    if (at("run").disabled) return;
    at("run").disabled = true;
    at("stop").disabled = false;
    at("output").replaceChildren();
    say(at("status"), "Running…");
    const start = performance.now();
    const failure = await python.run(at("code").value);
    if (failure) print(failure, "failed");
    const seconds = ((performance.now() - start) / 1000).toFixed(1);
    say(at("status"), `${failure ? "Ended with an error" : "Done"} after ${seconds} s.`);
    at("stop").disabled = true;
    at("run").disabled = false;
  };
  at("run").addEventListener("click", run);
  at("stop").addEventListener("click", () => python.stop());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") python.stop();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
}

/** Buttons that put an example into the editor; the first is there at the start. */
function showSnippets() {
  const buttons = SNIPPETS.map(({ name, code }) => {
    const button = document.createElement("button");
    button.textContent = name;
    button.addEventListener("click", () => {
      at("code").value = code;
      at("code").scrollTop = 0;
      for (const other of buttons) other.ariaPressed = String(other === button);
    });
    return button;
  });
  at("snippets").append(...buttons);
  buttons[0].click();
  if (MAC) at("run").querySelector("kbd").textContent = "⌘ Enter";
  at("code").addEventListener("keydown", keepIndentation);
  at("code").focus();
}

/** A new line begins below the one before. Tab stays the key that leaves the editor. */
function keepIndentation(/** @type {KeyboardEvent} */ event) {
  if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.isComposing) return;
  const editor = /** @type {HTMLTextAreaElement} */ (event.target);
  const before = editor.value.slice(0, editor.selectionStart);
  const line = before.slice(before.lastIndexOf("\n") + 1);
  const indent = (/^ */.exec(line)?.[0] ?? "") + (line.trimEnd().endsWith(":") ? "    " : "");
  event.preventDefault();
  editor.setRangeText(`\n${indent}`, editor.selectionStart, editor.selectionEnd, "end");
}

/** @param {string} text @param {string} [kind] class of the line */
function print(text, kind = "") {
  const line = document.createElement("span");
  line.className = kind;
  line.textContent = `${text}\n`;
  at("output").append(line);
  at("output").scrollTop = at("output").scrollHeight;
}

try {
  await main();
} catch (error) {
  complain(at("status"), error);
}
