"""A thread of a step that traps: the others are not left waiting, and everyone is told."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator

import pytest

from runtime_py.errors import ArtifactUnsupported, DeviceLost
from runtime_py.executors.base import Step
from runtime_py.executors.wasmtime import WasmtimeExecutor, executor
from runtime_py.executors.wasmtime.device import Device
from runtime_py.executors.wasmtime.memory import LinearMemory
from runtime_py.program import TensorFormat
from tests.ops.cases import make_step
from tests.ops.cases.encoder import encoder, weights_of

TIMEOUT_S = 60
MAX_TOKENS, MAX_SEQS, THREADS = 997, 13, 2  # numbers that are found again in memory
OUTSIDE = 0xFFFF0000  # the last page, which no wasm memory of ours has
STEP = make_step([307], ids=[5] * 307, threads=THREADS)

Loaded = tuple[WasmtimeExecutor, LinearMemory]


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loaded]:
    """A model of two threads, and its memory, which works."""
    memories: list[LinearMemory] = []
    real = Device.__init__

    def spy(self: Device, *args: object) -> None:
        memories.append(args[3])  # type: ignore[arg-type]
        real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Device, "__init__", spy)
    program, parts = encoder(TensorFormat.I8B32)
    limits = {"max_tokens": MAX_TOKENS, "max_seqs": MAX_SEQS, "concurrent_steps": 1}
    model = executor.WasmtimeExecutor.from_weights(
        program, weights_of(program, parts), threads=THREADS, **limits
    )
    assert model.run(STEP).statuses == b"\0"
    yield model, memories[0]
    model.close()


def poison(memory: LinearMemory, before: bytes, value: int) -> None:
    """Overwrite the word behind the only occurrence of ``before``."""
    view = memory.view()
    head = bytes(view[: 1 << 20])  # the module's own data
    assert head.count(before) == 1
    at = head.index(before) + len(before)
    view[at : at + 4] = struct.pack("<I", value)


def poison_helper(memory: LinearMemory) -> None:
    """Rank 1's scratch lies ``scratch_bytes`` behind rank 0's: far outside."""
    numbers = struct.pack("<4I", MAX_TOKENS, MAX_SEQS, 1, THREADS)
    poison(memory, numbers, OUTSIDE // 2)


def poison_leader(memory: LinearMemory) -> None:
    """Only rank 0 reads the rows of the sequences, before the helper may begin."""
    whole = bytes(memory.view())
    rows = whole.index(struct.pack("<4I", *STEP.seqs[0]))
    at = whole.index(struct.pack("<I", rows))
    memory.view()[at : at + 4] = struct.pack("<I", OUTSIDE)


def outcome(model: WasmtimeExecutor, step: Step) -> list[BaseException]:
    """What a run on a thread of its own raises; fails when it does not come back."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            model.run(step)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    return raised


@pytest.mark.parametrize("poison", [poison_helper, poison_leader])
def test_a_trap_in_one_thread_ends_the_step_of_all(loaded: Loaded, poison: object) -> None:
    model, memory = loaded
    poison(memory)  # type: ignore[operator]
    (error,) = outcome(model, STEP)
    assert isinstance(error, DeviceLost)
    assert "trapped in " + ("v_worker" if poison is poison_helper else "v_lead") in str(error)
    (again,) = outcome(model, make_step([3], ids=[1] * 3))
    assert isinstance(again, DeviceLost)
    closer = threading.Thread(target=model.close, daemon=True)
    closer.start()
    closer.join(TIMEOUT_S)
    assert not closer.is_alive()


def test_a_module_of_another_abi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_py.executors.wasmtime.loader.ABI_VERSION", 1)
    program, parts = encoder(TensorFormat.I8B32)
    with pytest.raises(ArtifactUnsupported, match="ABI version 2, this runtime 1; run `toolchain"):
        WasmtimeExecutor.from_weights(program, weights_of(program, parts))
