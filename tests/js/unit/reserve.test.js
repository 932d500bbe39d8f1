import assert from "node:assert/strict";
import { test } from "node:test";
import { WorkerReserve } from "../../../workers/src/pool/reserve.js";

/** What a host spawns, with the events of each at hand. */
function spawner() {
  const spawned = [];
  const spawn = (events) => {
    const worker = { events, ended: false, post() {}, hold() {} };
    worker.terminate = async () => void (worker.ended = true);
    spawned.push(worker);
    return worker;
  };
  return { spawned, spawn };
}

/** Events that say what they were told. */
function listener() {
  const heard = [];
  return { heard, onMessage: (m) => heard.push(m), onError: (e) => heard.push(`error ${e}`) };
}

test("whoever takes a worker hears what it said before, and after", async () => {
  const { spawned, spawn } = spawner();
  const reserve = new WorkerReserve(spawn);
  reserve.fill(1);
  reserve.fill(1);
  assert.equal(spawned.length, 1);
  spawned[0].events.onMessage("loaded");
  spawned[0].events.onError("broken");
  const events = listener();
  assert.equal(reserve.take(events), spawned[0]);
  assert.deepEqual(events.heard, [], "not before the caller has the worker");
  await null;
  spawned[0].events.onMessage("later");
  assert.deepEqual(events.heard, ["loaded", "error broken", "later"]);
});

test("an empty reserve spawns; a released one ends what nobody took, and fills no more", () => {
  const { spawned, spawn } = spawner();
  const reserve = new WorkerReserve(spawn);
  reserve.fill(2);
  const taken = reserve.take(listener());
  reserve.release();
  assert.deepEqual(
    spawned.map(({ ended }) => ended),
    [false, true],
  );
  assert.equal(taken.ended, false);
  reserve.fill(2);
  assert.equal(spawned.length, 2);
  const events = listener();
  assert.equal(reserve.take(events), spawned[2]);
  spawned[2].events.onMessage("loaded");
  assert.deepEqual(events.heard, ["loaded"]);
});

test("a host that cannot spawn says so to whoever takes", () => {
  const reserve = new WorkerReserve(() => {
    throw new Error("forbidden");
  });
  reserve.fill(1);
  assert.throws(() => reserve.take(listener()), { message: "forbidden" });
});
