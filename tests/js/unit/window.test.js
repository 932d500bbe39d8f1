import assert from "node:assert/strict";
import { test } from "node:test";
import { Window } from "../../../workers/src/pool/window.js";

const MIB = 1 << 20;

function call() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

/** Whether a promise is settled when everything that is ready has run. */
async function settled(promise) {
  let is = false;
  promise.then(
    () => (is = true),
    () => (is = true),
  );
  await new Promise((resolve) => setImmediate(resolve));
  return is;
}

test("there is room until a MiB is on its way, and again when the oldest call is answered", async () => {
  const window = new Window();
  const [first, second, third] = [call(), call(), call()];
  assert.ok(await settled(window.add(first.promise, MIB / 2)));
  assert.ok(await settled(window.add(second.promise, MIB / 2)));
  const held = window.add(third.promise, 1);
  second.resolve();
  assert.ok(!(await settled(held)));
  first.resolve();
  assert.ok(await settled(held));
  const all = window.settle();
  assert.ok(!(await settled(all)));
  third.resolve();
  assert.ok(await settled(all));
});

test("a call that fails is thrown when its turn comes, and nowhere else", async () => {
  const window = new Window();
  const failing = call();
  failing.reject(new Error("no room"));
  await window.add(failing.promise, 1);
  await new Promise((resolve) => setImmediate(resolve)); // an unhandled one would end the test
  await assert.rejects(window.add(Promise.resolve(), MIB), { message: "no room" });
});
