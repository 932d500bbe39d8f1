"""Models of iteration-level schedulers, against what the systems document."""

from __future__ import annotations

from tests.simulate.small import DECODER, Hand, ids, setup, slices
from toolchain.simulate.policies.exllamav2 import PAGE_SIZE, ExLlamaV2
from toolchain.simulate.policies.iteration import IterationScheduler
from toolchain.simulate.policies.orca import Orca
from toolchain.simulate.policies.setup import Setup
from toolchain.simulate.policies.sglang import SGLang
from toolchain.simulate.policies.tensorrt_llm import CapacityPolicy, TensorRTLLM
from toolchain.simulate.policies.vllm import VLLM

LANE = "talker/generate"


def small(kv_blocks: int = 16, max_seqs: int = 4) -> Setup:
    """Blocks of 16 tokens."""
    return setup(DECODER, kv_blocks=kv_blocks, max_seqs=max_seqs)


def hand(policy: IterationScheduler) -> Hand:
    return Hand(policy, LANE)


def run_out(h: Hand, ms: float = 1000.0, limit: int = 2000) -> None:
    """End steps until nothing runs."""
    for i in range(limit):
        if h.step is None:
            return
        h.end(ms + i)
    raise AssertionError("it never ends")


def test_orca_reserves_for_all_tokens_a_request_may_get() -> None:
    policy = Orca(small(kv_blocks=4), max_num_seqs=4)  # 64 tokens
    h = hand(policy)
    assert slices(h.prompt(0, 0, 20, 28)) == [(0, 20)]
    assert policy.free_blocks == 1
    h.prompt(1, 1, 8, 9)  # would need 2 blocks; only its prompt would fit
    h.prompt(2, 2, 4, 4)  # would fit, but is behind it
    assert slices(h.end(3)) == [(0, 1)]
    step = h.end(4, stop=(0,))
    assert slices(step) == [(1, 8), (2, 4)]
    assert h.ended == {0: "done"}


def test_orca_mixes_whole_prompts_with_decodes() -> None:
    h = hand(Orca(small(), max_num_seqs=4))
    h.prompt(0, 0, 8, 8)
    h.prompt(1, 1, 50, 8)
    assert slices(h.end(2)) == [(0, 1), (1, 50)]
    assert slices(h.end(3)) == [(0, 1), (1, 1)]


def test_vllm_decodes_first_and_chunks_prompts_into_the_budget() -> None:
    h = hand(VLLM(small(), max_num_batched_tokens=32, max_num_seqs=4))
    assert slices(h.prompt(0, 0, 8, 20)) == [(0, 8)]
    h.prompt(1, 1, 50, 20)
    h.prompt(2, 2, 10, 20)
    assert slices(h.end(2)) == [(0, 1), (1, 31)]
    assert slices(h.end(3)) == [(0, 1), (1, 19), (2, 10)]
    assert slices(h.end(4)) == [(0, 1), (1, 1), (2, 1)]


def test_vllm_preempts_the_latest_and_admits_nobody_in_that_step() -> None:
    policy = VLLM(small(kv_blocks=4), max_num_batched_tokens=64, max_num_seqs=4)
    h = hand(policy)
    h.prompt(0, 0, 31, 40)
    h.prompt(1, 1, 31, 40)
    h.prompt(2, 2, 1, 4)
    h.end(3)  # both have 31 of 32 tokens in two blocks each, and a third waits for a block
    h.end(4)
    step = h.end(5)  # position 32 of the first: the second loses its blocks
    assert slices(step) == [(0, 1)]
    assert [s.request_id for s in policy.waiting] == [1, 2]
    step = h.end(6)
    assert ids(step)[0] == 0
    run_out(h)
    assert h.ended == {0: "done", 1: "done", 2: "done"}
    assert policy.free_blocks == 4


def test_vllm_readmits_nobody_in_a_step_that_preempted_even_if_a_chunk_would_fit() -> None:
    policy = VLLM(small(kv_blocks=4), max_num_batched_tokens=16, max_num_seqs=4)
    h = hand(policy)
    h.prompt(0, 0, 15, 40)
    h.prompt(1, 1, 15, 40)
    for i in range(40):
        step = h.end(2 + i)
        if policy.waiting:
            break
    assert [s.request_id for s in policy.waiting] == [1]
    assert policy.free_blocks > 0  # its first chunk would fit
    assert ids(step) == [0]


def test_sglang_prefills_before_it_decodes() -> None:
    h = hand(SGLang(small(), chunked_prefill_size=64, max_running_requests=4))
    assert slices(h.prompt(0, 0, 8, 8)) == [(0, 8)]
    h.prompt(1, 1, 8, 8)
    assert slices(h.end(2)) == [(1, 8)]  # a prefill batch holds no decodes
    assert slices(h.end(3)) == [(0, 1), (1, 1)]


def test_sglang_chunks_one_long_prompt_at_a_time() -> None:
    h = hand(SGLang(small(), chunked_prefill_size=40, max_running_requests=4))
    assert slices(h.prompt(0, 0, 100, 4)) == [(0, 40)]
    h.prompt(1, 1, 30, 4)
    assert slices(h.end(2)) == [(0, 40)]
    assert slices(h.end(3)) == [(0, 20), (1, 20)]
    assert slices(h.end(4)) == [(1, 10)]
    assert slices(h.end(5)) == [(0, 1), (1, 1)]


def test_sglang_retracts_the_least_generated_and_grows_careful() -> None:
    policy = SGLang(small(kv_blocks=4), chunked_prefill_size=64, max_running_requests=4)
    policy._ratio = 0.0  # as after a long time without trouble
    h = hand(policy)
    h.prompt(0, 0, 10, 38)
    h.end(1)
    h.prompt(2, 1, 10, 34)
    before = 1.0
    for i in range(40):  # together they outgrow 64 tokens
        before = policy._ratio if len(policy.running) == 2 else before
        h.end(3 + i)
        if len(policy.running) == 1:
            break
    assert [s.request_id for s in policy.waiting] == [1]  # it began later
    assert ids(h.step) == [0]
    assert policy._ratio > before
    run_out(h)
    assert h.ended == {0: "done", 1: "done"}


def test_tensorrt_llm_guarantees_that_nobody_is_evicted() -> None:
    policy = TensorRTLLM(
        small(kv_blocks=4),
        capacity=CapacityPolicy.GUARANTEED_NO_EVICT,
        max_num_tokens=64,
        max_batch_size=4,
    )
    h = hand(policy)
    h.prompt(0, 0, 16, 32)
    h.prompt(1, 1, 16, 32)
    assert slices(h.end(2)) == [(0, 1)]  # its last block is promised
    run_out(h)
    assert h.ended == {0: "done", 1: "done"}


def test_tensorrt_llm_max_utilization_starts_more_and_pauses_the_latest() -> None:
    policy = TensorRTLLM(
        small(kv_blocks=4),
        capacity=CapacityPolicy.MAX_UTILIZATION,
        max_num_tokens=64,
        max_batch_size=4,
    )
    h = hand(policy)
    h.prompt(0, 0, 16, 40)
    h.prompt(1, 1, 16, 40)
    assert ids(h.end(2)) == [0, 1]
    paused = False
    for i in range(60):
        if h.step is None:
            break
        step = h.end(3 + i)
        paused = paused or [s.request_id for s in policy.waiting] == [1]
        assert step is None or 0 in ids(step) or 0 in h.ended
    assert paused
    run_out(h)
    assert h.ended == {0: "done", 1: "done"}


def test_tensorrt_llm_puts_generation_before_context_within_the_token_limit() -> None:
    policy = TensorRTLLM(
        small(),
        capacity=CapacityPolicy.MAX_UTILIZATION,
        max_num_tokens=20,
        max_batch_size=4,
    )
    h = hand(policy)
    h.prompt(0, 0, 4, 20)
    h.prompt(1, 1, 30, 20)
    assert slices(h.end(2)) == [(0, 1), (1, 19)]
    assert slices(h.end(3)) == [(0, 1), (1, 11)]


def test_exllamav2_reserves_pages_for_prompt_and_answer() -> None:
    policy = ExLlamaV2(
        small(kv_blocks=3 * PAGE_SIZE // 16), max_chunk_size=64, max_batch_size=4, max_skips=1
    )
    h = hand(policy)
    assert policy.free_blocks == 3
    h.prompt(0, 0, 100, 156)
    assert policy.free_blocks == 2
    assert slices(h.step) == [(0, 64)]


def test_exllamav2_prefills_apart_from_decoding_chunk_by_chunk() -> None:
    policy = ExLlamaV2(small(kv_blocks=4 * PAGE_SIZE // 16), max_chunk_size=64, max_batch_size=4)
    h = hand(policy)
    h.prompt(0, 0, 10, 50)
    h.prompt(1, 1, 100, 50)
    assert slices(h.end(2)) == [(0, 1)]
    assert slices(h.end(3)) == [(1, 64)]  # a chunk between two tokens of the stream
    assert slices(h.end(4)) == [(0, 1)]
    assert slices(h.end(5)) == [(1, 36)]
    assert slices(h.end(6)) == [(0, 1), (1, 1)]


def test_exllamav2_lets_smaller_jobs_pass_a_few_times_only() -> None:
    lane = small(kv_blocks=2 * PAGE_SIZE // 16)
    policy = ExLlamaV2(lane, max_chunk_size=64, max_batch_size=4, max_skips=1)
    policy._max_context = 512
    h = hand(policy)
    h.prompt(0, 0, 10, 100)  # one page
    h.prompt(1, 1, 10, 400)  # two pages: it does not fit
    h.prompt(1, 2, 10, 100)  # passes it
    while 2 not in ids(h.step):
        h.end(h.now / 1e6 + 1)
    h.prompt(50, 3, 10, 100)
    while 2 not in h.ended:
        h.end(h.now / 1e6 + 1, stop=(2,))
    for _ in range(3):
        h.end(h.now / 1e6 + 1)
    assert 3 not in ids(h.step)  # the page is free, but the first waited long enough
    run_out(h)
    assert h.ended == dict.fromkeys((0, 2, 1, 3), "done")
