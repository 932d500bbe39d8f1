"""The queue against a plain sorted list."""

from __future__ import annotations

import random

import pytest

from runtime_py.batching import QueuePolicy, SchedulerConfig, TrafficClass
from runtime_py.batching.queue import ClassQueue, RequestQueue
from runtime_py.batching.request import Request


def request(seq: int, *lengths: int, due: int = 0, traffic: TrafficClass) -> Request:
    r = Request(seq, lengths, traffic, seq, -1, seq)
    r.due_ns = r.rank_ns = due
    return r


@pytest.mark.parametrize("traffic", list(TrafficClass))
def test_random_operations_match_a_sorted_list(traffic: TrafficClass) -> None:
    rng = random.Random(4)
    queue = ClassQueue(traffic, QueuePolicy(), 0)
    model: list[Request] = []
    taken: list[tuple[Request, int]] = []

    def key(r: Request) -> tuple[int, int]:
        return (r.rank_ns if traffic is TrafficClass.LATENCY else r.arrival_ns, r.seq)

    for seq in range(3000):
        dice = rng.random()
        if dice < 0.45:
            lengths = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 4))]
            r = request(seq, *lengths, due=rng.randrange(50), traffic=traffic)
            queue.push(r, seq)
            model.append(r)
        elif dice < 0.65 and model:
            r = model.pop(rng.randrange(len(model)))
            r.alive = False
            queue.remove(r)
        elif dice < 0.75 and taken:
            r, item = taken.pop(rng.randrange(len(taken)))
            if r.alive:
                queue.restore(r, [item], seq)
                if r not in model:
                    model.append(r)
        elif model:
            head = min(model, key=key)
            assert queue.head() is head
            expected = head.next_item()
            assert queue.take(head, 1) == expected
            taken.append((head, expected))
            if not head.num_waiting:
                model.remove(head)
        assert len(queue) == len(model)
        assert queue.num_seqs == sum(r.num_waiting for r in model)
        assert queue.num_tokens == sum(r.waiting_tokens for r in model)
        assert queue.sum_len_sq == sum(r.waiting_sq for r in model)
        heap = next((t._heap for t in queue.tenants.active.values()), [])
        assert len(heap) <= max(66, 2 * len(model) + 2)


def test_given_back_items_run_first_and_in_order() -> None:
    queue = RequestQueue(SchedulerConfig())
    r = request(0, 1, 2, 3, 4, traffic=TrafficClass.LATENCY)
    queue.push(r, 0)
    assert [queue.latency.take(r, 1) for _ in range(3)] == [0, 1, 2]
    queue.give_back(r, [2, 0], 1)
    assert [queue.latency.take(r, 1) for _ in range(3)] == [0, 2, 3]
    queue.give_back(r, [3], 2)
    assert queue.latency.take(r, 1) == 3
    assert queue.latency.head() is None


def test_alarms_of_the_dead_are_dropped() -> None:
    queue = RequestQueue(SchedulerConfig())
    requests = [request(i, 1, traffic=TrafficClass.LATENCY) for i in range(500)]
    for r in requests:
        queue.push(r, 0)
        queue.set_alarm(r, 1000 + r.seq)
    for r in requests[:499]:
        queue.remove(r)
    assert len(queue._alarms) < 100
    assert queue.next_alarm() == 1499
    assert queue.pop_alarm(1498) is None
    assert queue.pop_alarm(1499) is requests[499]
    assert queue.next_alarm() == -1
