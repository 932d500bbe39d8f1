"""A bound, not a system: the most requests that can still be in time (Moore 1968).

One device, one text per step, and exact knowledge of what each one costs: Moore and Hodgson's
rule finds the largest set of the waiting requests that all meet their deadlines, whenever the
device becomes free. Only knowing the future arrivals could do better. It drops long requests
for short ones as it likes, so nobody should want it; it tells how much there is to be had.
"""

from __future__ import annotations

import heapq
from collections import deque

from runtime_py.batching import FinishReason, StepShape
from toolchain.simulate.policies.dispatcher import Batch, Dispatcher, Job


class MooreHodgson(Dispatcher):
    """Runs the first, by deadline, of the largest set that can be in time."""

    def next_batch(self, now_ns: int) -> Batch:
        slo_ns = int(self.lane.slo.latency_ms * 1e6)
        waiting: list[Job] = []
        for job in self.queue:
            if not job.request.alive:
                continue
            if now_ns + self._cost_ns(job) > job.arrival_ns + slo_ns:
                self.reject(job.request, FinishReason.DEADLINE, now_ns)
            else:
                waiting.append(job)
        chosen: list[tuple[float, int]] = []  # the costliest first
        end_ns = float(now_ns)
        for i, job in enumerate(waiting):
            cost_ns = self._cost_ns(job)
            end_ns += cost_ns
            heapq.heappush(chosen, (-cost_ns, i))
            if end_ns > job.arrival_ns + slo_ns:
                end_ns += heapq.heappop(chosen)[0]
        if not chosen:
            self.queue = deque(waiting)
            return Batch()
        first = waiting.pop(min(i for _, i in chosen))
        self.queue = deque(waiting)
        return Batch([first])

    def _cost_ns(self, job: Job) -> float:
        n = job.num_tokens[0]
        return self.lane.profile.step_ns(StepShape(1, n, n * n))
