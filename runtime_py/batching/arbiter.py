"""Which lane gets the device next, and with how many threads."""

from __future__ import annotations

from collections.abc import Sequence

from runtime_py.batching.lane import Lane
from runtime_py.batching.types import NS_PER_MS, DeviceSpec, StepShape


class Arbiter:
    """Divides one device between lanes and a lane's threads between steps."""

    def __init__(self, device: DeviceSpec, step_target_ms: int) -> None:
        self._device = device
        self._step_ns = float(step_target_ms * NS_PER_MS)

    def choose_lane(self, lanes: Sequence[Lane], now_ns: int) -> Lane | None:
        """The lane whose work should start now, or None when nothing waits.

        Latency work (and bulk work whose turn is overdue) goes first, the one that must
        start earliest. Bulk lanes share the rest by device time over weight. Slack is
        spent in one case only: when a bulk step ends before an urgent lane must start,
        and the arrivals expected until then will make that lane's step larger.
        """
        if len(lanes) == 1:
            return lanes[0] if lanes[0].has_work else None
        urgent: Lane | None = None
        bulk: Lane | None = None
        start_ns = 0
        for lane in lanes:
            if not lane.has_work:
                continue
            if lane.is_urgent(now_ns):
                latest = lane.latest_start_ns(self._device.threads, now_ns)
                if urgent is None or latest < start_ns:
                    urgent, start_ns = lane, latest
            elif bulk is None or lane.share_ns < bulk.share_ns:
                bulk = lane
        if urgent is None or bulk is None:
            return urgent or bulk
        slack_ns = start_ns - now_ns
        if slack_ns > self._step_ns and urgent.arrivals.expected(slack_ns, now_ns) > 0:
            return bulk
        return urgent

    def choose_threads(self, lane: Lane, free: int, slots: int) -> tuple[int, float]:
        """Threads for the lane's next step and the predicted time it may take, in ns.

        With a backlog, side-by-side steps waste no time at barriers, and they end at
        different times, so the device is often free for a newcomer. Work that one round
        of steps would finish is better joined, because steps of unequal length leave
        threads idle at the end; and a lone request gets as many threads as help it.

        Args:
            lane: it has waiting work.
            free: threads that no step uses.
            slots: steps that may still start.
        """
        queue, cost = lane.queue, lane.cost
        steps = min(slots, free, queue.num_seqs)
        if steps > 1:
            threads = free // steps
            share = StepShape(
                queue.num_seqs // steps,
                queue.num_tokens // steps,
                queue.sum_len_sq // steps,
                0,
                threads,
            )
            side_ns = cost.predict(share)
            if side_ns > self._step_ns:
                return threads, self._step_ns
            joined_ns = cost.predict(lane.waiting(free))
            if joined_ns > side_ns + side_ns // (2 * share.num_seqs):
                return threads, float(side_ns + side_ns // (2 * share.num_seqs))
        threads = self.best_threads(lane, free)
        waiting_ns = float(cost.predict(lane.waiting(threads)))
        rounds = min(self._device.threads, self._device.concurrent_steps)
        if slots == 1 and waiting_ns * rounds > self._step_ns:
            # The last steps of a backlog shrink, so that the threads end together.
            return threads, min(self._step_ns, waiting_ns / rounds)
        return threads, self._step_ns

    def best_threads(self, lane: Lane, free: int) -> int:
        """The count that finishes the waiting work first; the largest among equals."""
        best = free
        if free > 1:
            best_ns = lane.cost.predict(lane.waiting(free))
            for threads in range(free - 1, 0, -1):
                ns = lane.cost.predict(lane.waiting(threads))
                if ns < best_ns:
                    best, best_ns = threads, ns
        return best
