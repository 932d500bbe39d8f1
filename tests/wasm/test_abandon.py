"""A rank that dies must not leave the others of its step waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from runtime_py.executors.wasmtime.calls import Instance
from runtime_py.executors.wasmtime.loader import load, make_memory
from runtime_py.executors.wasmtime.memory import LinearMemory
from runtime_py.executors.wasmtime.modules import engine, module
from runtime_py.executors.weights import MemoryWeights
from tests.wasm import models
from tests.wasm.driver import OK

ABANDONED = -7
TIMEOUT_S = 60


@dataclass
class Threads:
    """Three instances over one loaded model: a leader, a helper, and one more."""

    memory: LinearMemory
    leader: Instance
    helper: Instance
    other: Instance

    def fill(self) -> None:
        """A good step of one sequence in workspace 0."""
        ids = np.arange(5, dtype="<i4")
        row = np.array([0, 5, 0, 0], "<u4")
        with self.other.held():
            at = [self.other.call("v_workspace", 0, part) & 0xFFFFFFFF for part in range(3)]
        for address, data in zip(at, (np.array([5, 1], "<u4"), ids, row), strict=True):
            self.memory.view()[address : address + data.nbytes] = data.tobytes()


def on_thread(instance: Instance, name: str, *args: int) -> tuple[threading.Thread, list[int]]:
    """Call an export on a thread of its own; its result when the thread has ended."""
    results: list[int] = []

    def call() -> None:
        with instance.held():
            results.append(instance.call(name, *args))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread, results


@pytest.fixture
def threads() -> Iterator[Threads]:
    wasm = module("relaxed-threads")
    memory = make_memory(engine(True), wasm, True)
    program = models.everything()
    leader = Instance(wasm, memory)
    with leader.held():
        weights = MemoryWeights(program, models.random_parts(program))
        limits = {"max_tokens": 64, "max_seqs": 4, "workspaces": 2, "threads": 2}
        load(leader, memory, program, weights, **limits)
        stacks = [leader.call("v_stack_top", i) for i in range(3)]
    helper, other = Instance(wasm, memory), Instance(wasm, memory)
    for instance, stack in ((helper, stacks[0]), (other, stacks[1]), (leader, stacks[2])):
        instance.set_stack(stack)
    state = Threads(memory, leader, helper, other)
    state.fill()
    yield state
    for instance in (leader, helper, other):
        instance.close()
    memory.close()


def abandon(threads: Threads, ws: int = 0) -> None:
    with threads.other.held():
        threads.other.call("v_abandon", ws)


def test_a_leader_gets_an_error_when_a_rank_never_comes(threads: Threads) -> None:
    thread, results = on_thread(threads.leader, "v_lead", 0, 2)
    abandon(threads)
    thread.join(TIMEOUT_S)
    assert results == [ABANDONED]
    with threads.other.held():
        assert threads.other.call("v_run", 0) == ABANDONED  # for good
        assert threads.other.call("v_lead", 0, 1) == ABANDONED


def test_a_helper_is_free_again_when_the_leader_never_comes(threads: Threads) -> None:
    thread, results = on_thread(threads.helper, "v_worker", 0)
    with threads.other.held():
        threads.other.call("v_post", 0, 0, 1, 2)
    abandon(threads)
    with threads.other.held():
        threads.other.call("v_stop", 0)
    thread.join(TIMEOUT_S)
    assert results == [-1]


def test_a_worker_that_leads_returns_with_the_workspace(threads: Threads) -> None:
    thread, results = on_thread(threads.helper, "v_worker", 0)
    with threads.other.held():
        threads.other.call("v_post", 0, 0, 0, 2)
    abandon(threads)
    thread.join(TIMEOUT_S)
    assert results == [0]
    with threads.other.held():
        header = threads.other.call("v_workspace", 0, 0) & 0xFFFFFFFF
    status = np.frombuffer(bytes(threads.memory.view()[header + 8 : header + 12]), "<i4")
    assert status == ABANDONED


def test_other_workspaces_and_nonsense_are_left_alone(threads: Threads) -> None:
    for ws in (1, 2, 0xFFFFFFFF):
        abandon(threads, ws)
    with threads.leader.held():
        assert threads.leader.call("v_run", 0) == OK
