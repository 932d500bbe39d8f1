"""A profile that takes tokens for far too dear must not keep prompts in single tokens."""

from __future__ import annotations

from runtime_py.batching import (
    BatchingCore,
    CostProfile,
    DecoderStepScheduled,
    DeviceSpec,
    GenerationArrived,
    LaneKind,
    LaneSpec,
    StepCompleted,
    StepOutcome,
)

NS_PER_MS = 1_000_000


def device_ns(tokens: int) -> int:
    """What the device really takes: 8 ms and 4 ms a token."""
    return (8 + 4 * tokens) * NS_PER_MS


def test_a_prompt_alone_teaches_what_tokens_cost() -> None:
    profile = CostProfile(step_ns=60 * NS_PER_MS, token_ns=31 * NS_PER_MS)
    lane = LaneSpec(
        "lm",
        max_tokens=512,
        max_seqs=64,
        profile=profile,
        kind=LaneKind.DECODER,
        kv_blocks=200,
        block_size=32,
    )
    core = BatchingCore([lane], DeviceSpec())
    now_ns = 0
    arrived = GenerationArrived(0, "lm", tuple(range(1000)), 1)
    decisions = core.handle(arrived, now_ns)
    chunks = []
    while steps := [d for d in decisions if isinstance(d, DecoderStepScheduled)]:
        (step,) = steps
        tokens = step.shape.num_tokens
        chunks.append(tokens)
        now_ns += device_ns(tokens)
        wanted = sum(s.wanted for s in step.seqs)
        done = StepCompleted(step.step_id, StepOutcome.OK, device_ns(tokens), (), (7,) * wanted)
        decisions = core.handle(done, now_ns)
    assert sum(chunks) == 1000
    assert min(chunks[:-1]) >= 20, chunks  # what 100 ms hold on this device is 23 tokens
    assert now_ns < 2 * device_ns(1000)
