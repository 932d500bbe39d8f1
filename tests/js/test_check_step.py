"""JavaScript refuses the steps that Python refuses, with the same class of error."""

from __future__ import annotations

from array import array
from dataclasses import replace
from random import Random
from typing import Any

from runtime_py.errors import InvalidInput
from runtime_py.executors.base import ExecutorLimits, SamplingRow, SeqRow, Step
from runtime_py.executors.check import check_step
from tests.js.hosts import ProcessHost
from tests.ops.write_cases import step_json

STEPS = 3000
LIMITS = ExecutorLimits(120, 4, 1, 1, kv_blocks=9, max_wanted=5)


class Bounds:
    vocab_size = 40
    max_positions = 150


def random_row(random: Random) -> SamplingRow:
    """Mostly in range."""
    pick = random.choice
    ids = random.sample(range(-(random.random() < 0.05), 41), random.randrange(4))
    if ids and random.random() < 0.1:
        ids.append(ids[0])
    mask = random.getrandbits(40) & random.getrandbits(40) if random.random() < 0.3 else None
    return SamplingRow(
        temperature=pick([0.0, 1.0, 1e-6, 1e6, 1e-7] if random.random() < 0.3 else [0.0, 0.7]),
        top_k=pick([0, 0, 5, 2**31 - 1, 2**31] if random.random() < 0.2 else [0, 3]),
        top_p=pick([1.0, 0.5, 0.0, 1.5] if random.random() < 0.2 else [1.0, 0.3]),
        min_p=pick([0.0, 1.0, 1.1] if random.random() < 0.2 else [0.0]),
        repetition_penalty=pick([1.0, 1e-3, 1e-4] if random.random() < 0.2 else [1.0]),
        presence_penalty=pick([0.0, -1e3, 1001.0] if random.random() < 0.2 else [0.0]),
        frequency_penalty=pick([0.0, 1e3, -1e4] if random.random() < 0.2 else [0.0]),
        penalized=[(i, random.randrange(3), random.randrange(-1, 9)) for i in ids],
        bias=[(i, pick([0.5, -1e9, -1e10, 2.0, 3.0, 4.0])) for i in ids],
        mask=None if mask is None else mask.to_bytes(8, "little"),
        seed=random.getrandbits(64),
        position=random.getrandbits(32),
        top_logprobs=pick([0, 20, 21] if random.random() < 0.1 else [0, 2]),
    )


def random_step(random: Random) -> Step:
    """A step that is right, but for a few of its numbers."""
    seqs, tables, ids = [], [], array("i")
    blocks = random.sample(range(9), 9)
    for _ in range(random.randint(1, 4)):
        tokens, context = random.choice([1, 1, 5, 33]), random.choice([0, 0, 31, 32, 70])
        count = -(-(tokens + context) // 32)
        seqs.append(SeqRow(len(ids), tokens, context))
        tables.append(array("i", blocks[:count]))
        blocks = blocks[count:] if random.random() < 0.9 else blocks
        ids.extend(random.randrange(40) for _ in range(tokens))
    wanted = sorted(random.sample(range(len(ids)), min(len(ids), random.randrange(6))))
    sampling = [random_row(random) for _ in wanted] if random.random() < 0.6 else None
    pairs = random.sample(range(9), 2 * random.randrange(3))
    copies = list(zip(pairs[::2], pairs[1::2], strict=True))
    step = Step(ids, seqs, 1, tables, copies, wanted, sampling)
    return spoilt(random, step) if random.random() < 0.6 else step


def spoilt(random: Random, step: Step) -> Step:
    """``step`` with one number changed by a little."""
    change = random.choice([-1, 1, 8, 200])
    at = random.randrange(len(step.seqs))
    match random.randrange(6):
        case 0:
            ids = array("i", step.token_ids)
            ids[random.randrange(len(ids))] += change
            return replace(step, token_ids=ids)
        case 1:
            row = list(step.seqs[at])
            row[random.randrange(4)] += change
            rows = [*step.seqs[:at], SeqRow(*row), *step.seqs[at + 1 :]]
            return replace(step, seqs=rows)
        case 2:
            tables = [array("i", t) for t in step.block_tables]
            if tables[at]:
                tables[at][random.randrange(len(tables[at]))] += change
            return replace(step, block_tables=tables)
        case 3:
            return replace(step, block_tables=[*step.block_tables[:-1]])
        case 4:
            return replace(step, copies=[*step.copies, (random.randrange(9), random.randrange(10))])
        case _:
            return replace(step, wanted=[*step.wanted, random.randrange(-1, 120)])


def verdict(step: Step) -> str | None:
    try:
        check_step(Bounds, LIMITS, step)
    except InvalidInput as error:
        return type(error).__name__
    return None


def test_javascript_and_python_refuse_the_same_steps(node: ProcessHost) -> None:
    random = Random(5)
    steps = [random_step(random) for _ in range(STEPS)]
    wanted = [verdict(step) for step in steps]
    args: dict[str, Any] = {
        "bounds": {"vocabSize": Bounds.vocab_size, "maxPositions": Bounds.max_positions},
        "limits": {
            "maxTokens": LIMITS.max_tokens,
            "maxSeqs": LIMITS.max_seqs,
            "kvBlocks": LIMITS.kv_blocks,
            "maxWanted": LIMITS.max_wanted,
        },
        "steps": [step_json(step, [], b"") for step in steps],
    }
    got = [found and found["name"] for found in node.run("check", args)]
    differing = [i for i in range(STEPS) if got[i] != wanted[i]]
    assert not differing, (steps[differing[0]], got[differing[0]], wanted[differing[0]])
    assert STEPS / 5 < wanted.count(None) < STEPS * 4 / 5
