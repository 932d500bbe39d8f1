"""Models of request batchers, against what the systems document."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime_py.batching import TrafficClass
from tests.simulate.small import MS, Hand, ids, setup
from toolchain.simulate.policies.bentoml import BentoML
from toolchain.simulate.policies.litserve import LitServe
from toolchain.simulate.policies.mosec import Mosec
from toolchain.simulate.policies.no_batching import NoBatching
from toolchain.simulate.policies.setup import Setup
from toolchain.simulate.policies.text_embeddings_inference import TextEmbeddingsInference
from toolchain.simulate.policies.triton import (
    DynamicBatching,
    QueuePolicy,
    TimeoutAction,
    Triton,
)


def triton(max_batch: int = 8, **batching: object) -> Hand:
    return Hand(Triton(setup(), DynamicBatching(max_batch, **batching)))  # type: ignore[arg-type]


def test_no_batching_runs_a_request_at_a_time_in_order() -> None:
    hand = Hand(NoBatching(setup()))
    assert ids(hand.arrive(0, 0)) == [0]
    hand.arrive(1, 1, 5, 5)
    hand.arrive(2, 2)
    assert ids(hand.end(3)) == [1, 1]  # a list is one request
    assert ids(hand.end(4)) == [2]
    assert hand.end(5) is None
    assert hand.ended == dict.fromkeys(range(3), "done")


def test_triton_sends_what_waits_up_to_the_maximum_without_a_delay() -> None:
    hand = triton(max_batch=4)
    assert ids(hand.arrive(0, 0)) == [0]
    for i in range(1, 7):
        hand.arrive(i, i)
    assert ids(hand.end(10)) == [1, 2, 3, 4]
    assert ids(hand.end(20)) == [5, 6]


def test_triton_prefers_the_largest_preferred_size() -> None:
    hand = triton(max_batch=8, preferred_batch_size=(2, 4), max_queue_delay_ns=50 * MS)
    assert hand.arrive(0, 0) is None  # alone it is delayed
    assert hand.wake == 50 * MS
    assert ids(hand.arrive(5, 1)) == [0, 1]  # a preferred size is formed: sent at once
    for i in range(2, 9):
        hand.arrive(5 + i, i)
    assert ids(hand.end(20)) == [2, 3, 4, 5]  # the largest preferred of 7 that wait
    assert ids(hand.end(21)) == [6, 7]
    assert hand.end(22) is None
    assert ids(hand.at(13 + 50)) == [8]  # its delay counts from its arrival


def test_triton_delays_no_longer_than_allowed_and_not_when_full() -> None:
    hand = triton(max_batch=3, max_queue_delay_ns=10 * MS)
    assert hand.arrive(0, 0) is None
    assert hand.arrive(4, 1) is None
    assert hand.wake == 10 * MS
    assert ids(hand.at(10)) == [0, 1]
    hand.end(11)
    assert hand.arrive(12, 2) is None
    assert hand.arrive(13, 3) is None
    assert ids(hand.arrive(14, 4)) == [2, 3, 4]


def test_triton_serves_higher_priority_levels_first() -> None:
    hand = triton(max_batch=2, priority_levels=2)
    bulk = TrafficClass.THROUGHPUT
    hand.arrive(0, 0, traffic=bulk)
    hand.arrive(1, 1, traffic=bulk)
    hand.arrive(2, 2, traffic=bulk)
    hand.arrive(3, 3)
    assert ids(hand.end(4)) == [3, 1]
    assert ids(hand.end(5)) == [2]


def test_triton_rejects_after_the_queue_timeout_but_not_a_running_request() -> None:
    hand = triton(max_batch=1, policies=(QueuePolicy(timeout_ns=10 * MS),))
    hand.arrive(0, 0)
    hand.arrive(1, 1)
    hand.arrive(2, 2)
    assert hand.wake == 11 * MS
    hand.at(11)
    assert hand.ended == {1: "timeout"}
    assert ids(hand.end(11.5)) == [2]
    hand.at(40)
    assert ids(hand.end(50)) == []
    assert hand.ended == {0: "done", 1: "timeout", 2: "done"}


def test_triton_delayed_requests_wait_for_those_that_have_not_timed_out() -> None:
    policy = QueuePolicy(timeout_ns=10 * MS, timeout_action=TimeoutAction.DELAY)
    hand = triton(max_batch=1, policies=(policy,))
    hand.arrive(0, 0)
    hand.arrive(1, 1)
    hand.arrive(9, 2)
    hand.at(11)
    assert ids(hand.end(12)) == [2]
    assert ids(hand.end(13)) == [1]


def test_triton_bounds_the_queue() -> None:
    hand = triton(max_batch=1, policies=(QueuePolicy(max_queue_size=1),))
    hand.arrive(0, 0)
    hand.arrive(1, 1)
    hand.arrive(2, 2)
    assert hand.ended == {2: "overloaded"}


def test_triton_never_splits_a_request_that_fits() -> None:
    hand = triton(max_batch=4)
    hand.arrive(0, 0)
    hand.arrive(1, 1, 5, 5, 5)
    hand.arrive(2, 2, 5, 5)
    assert ids(hand.end(3)) == [1, 1, 1]
    assert ids(hand.end(4)) == [2, 2]


def test_litserve_collects_from_the_moment_the_worker_is_free() -> None:
    hand = Hand(LitServe(setup(), max_batch_size=8, batch_timeout_ns=10 * MS))
    assert hand.arrive(3, 0) is None
    assert hand.wake == 10 * MS  # the first window began with the worker, at 0
    hand.arrive(7, 1)
    assert ids(hand.at(10)) == [0, 1]
    hand.end(14)
    assert hand.arrive(37, 2) is None  # windows end at 24, 34, 44, ...
    assert ids(hand.at(44)) == [2]


def test_litserve_sends_a_full_batch_at_once_and_all_without_a_timeout() -> None:
    hand = Hand(LitServe(setup(), max_batch_size=2, batch_timeout_ns=10 * MS))
    hand.arrive(1, 0)
    assert ids(hand.arrive(2, 1)) == [0, 1]
    hand = Hand(LitServe(setup(), max_batch_size=2))
    assert ids(hand.arrive(1, 0)) == [0]


def test_litserve_drops_requests_older_than_the_server_timeout() -> None:
    hand = Hand(LitServe(setup(), max_batch_size=1, request_timeout_ns=20 * MS))
    hand.arrive(0, 0)
    hand.arrive(1, 1)
    hand.arrive(15, 2)
    assert ids(hand.end(25)) == [2]
    assert hand.ended == {0: "done", 1: "timeout"}


def test_mosec_waits_from_the_first_task_it_took() -> None:
    hand = Hand(Mosec(setup(), max_batch_size=3, max_wait_ns=10 * MS))
    assert hand.arrive(3, 0) is None
    assert hand.wake == 13 * MS
    hand.arrive(12, 1)
    assert ids(hand.at(13)) == [0, 1]
    hand.arrive(14, 2)
    assert hand.end(30) is None  # it takes the task only now that it is free
    assert hand.wake == 40 * MS
    hand.arrive(31, 3)
    assert ids(hand.arrive(32, 4)) == [2, 3, 4]


def test_mosec_answers_requests_that_are_over_its_timeout() -> None:
    hand = Hand(Mosec(setup(), max_batch_size=1, max_wait_ns=0, timeout_ns=100 * MS))
    hand.arrive(0, 0)
    hand.arrive(1, 1)
    hand.at(101)
    assert hand.ended == {1: "timeout"}


def trained() -> Hand:
    """BentoML after its training, on a device of 10 ms a batch and 5 ms a request."""
    hand = Hand(BentoML(setup(), max_batch_size=8, max_latency_ns=100 * MS))
    ms = 0.0
    number = 0
    for size in [1] * 9 + [2, 3]:
        for _ in range(size):
            hand.arrive(ms, number)
            number += 1
        if hand.step is None:
            hand.at(hand.wake / MS)
        assert len(ids(hand.step)) == size
        ms = hand.now / MS + 10 + 5 * size
        hand.end(ms)
        ms += 1
    return hand


def test_bentoml_trains_with_batches_of_one_two_and_three() -> None:
    hand = trained()
    assert set(hand.ended.values()) == {"done"}
    fit = hand.policy._fit  # type: ignore[attr-defined]
    assert fit.a == pytest.approx(5 * MS, rel=0.01)
    assert fit.b == pytest.approx(10 * MS, rel=0.02)


def test_bentoml_cancels_the_oldest_that_cannot_be_in_time() -> None:
    hand = trained()
    start = hand.now / MS + 1000
    hand.arrive(start, 100)
    for i in range(6):
        hand.arrive(start + 1 + i, 101 + i)
    # 6 wait: the oldest is cancelled once its wait + 6 a + b reaches 100 ms
    assert hand.wake == pytest.approx((start + 1 + 100 - 6 * 5 - 10) * MS, abs=MS)
    hand.at(hand.wake / MS)
    assert [r for r, reason in hand.ended.items() if reason == "deadline"] == [101]


def test_bentoml_waits_for_more_while_the_mean_wait_pays() -> None:
    hand = trained()
    fit = hand.policy._fit  # type: ignore[attr-defined]
    fit.wait_ns = 40.0 * MS
    start = hand.now / MS + 1000
    # n * (wait of the newest + tick + a) <= 0.95 * mean wait: until 40 * 0.95 - 1 - 5 ms
    assert hand.arrive(start, 100) is None
    assert hand.wake == pytest.approx((start + 32) * MS, abs=MS)
    assert hand.arrive(start + 10, 101) is None
    assert hand.wake == pytest.approx((start + 10 + 19 - 6) * MS, abs=MS)
    assert ids(hand.at(hand.wake / MS)) == [100, 101]


def test_bentoml_splits_a_list_that_does_not_fit_whole() -> None:
    hand = trained()
    start = hand.now / MS + 1000
    hand.arrive(start, 100)
    hand.arrive(start + 1, 101, *[5] * 6)
    hand.arrive(start + 2, 102, *[5] * 4)
    assert ids(hand.end(start + 10)) == [101] * 6 + [102] * 2
    assert ids(hand.end(start + 20)) == [102] * 2
    assert hand.ended[101] == "done"
    hand.end(start + 30)
    assert hand.ended[102] == "done"


def test_tei_stops_at_the_first_text_beyond_the_token_budget() -> None:
    hand = Hand(TextEmbeddingsInference(setup(), max_batch_tokens=30))
    hand.arrive(0, 0)
    for i, n in enumerate((15, 10, 20, 5), 1):
        hand.arrive(i, i, n)
    assert ids(hand.end(10)) == [1, 2]  # 5 would fit, but is behind 20
    assert ids(hand.end(11)) == [3, 4]


def test_tei_counts_padded_tokens_for_a_padded_model() -> None:
    (lane,) = setup().lanes
    padded = Setup((replace(lane, padded=True),), setup().device)
    hand = Hand(TextEmbeddingsInference(padded, max_batch_tokens=30))
    hand.arrive(0, 0)
    for i, n in enumerate((15, 5, 5), 1):
        hand.arrive(i, i, n)
    step = hand.end(10)
    assert ids(step) == [1, 2]  # 3 x 15 would be 45
    assert step is not None
    assert step.shape.num_tokens == 30


def test_tei_refuses_beyond_its_concurrency_limit() -> None:
    hand = Hand(TextEmbeddingsInference(setup(), max_batch_tokens=30, max_concurrent_requests=2))
    for i in range(3):
        hand.arrive(i, i)
    assert hand.ended == {2: "overloaded"}
    hand.end(10)
    hand.arrive(11, 3)
    assert hand.ended == {0: "done", 2: "overloaded"}


@pytest.mark.parametrize("padded", [False, True])
def test_a_batch_costs_its_tokens_or_its_padded_tokens(padded: bool) -> None:
    hand = Hand(Triton(setup(padded=padded), DynamicBatching(8)))
    hand.arrive(0, 0, 7)
    hand.arrive(1, 1, 3)
    hand.arrive(2, 2, 9)
    step = hand.end(3)
    assert step is not None
    assert step.shape.num_tokens == (18 if padded else 12)
    assert step.shape.sum_len_sq == (162 if padded else 90)
