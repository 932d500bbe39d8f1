"""Which lane gets the device next, and with how many threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from runtime_py.batching.lane import Lane
from runtime_py.batching.types import MAX_NS, DeviceSpec, StepShape, Turn


class Choice(NamedTuple):
    """The lane that gets the device, and why it does."""

    lane: Lane
    turn: Turn


class Arbiter:
    """Divides one device between lanes and a lane's threads between steps.

    Attributes:
        wake_ns: when the first lane that saves energy has to start, or `MAX_NS`.
    """

    def __init__(self, device: DeviceSpec) -> None:
        self.wake_ns = MAX_NS
        self._device = device

    def choose_lane(self, lanes: Sequence[Lane], now_ns: int) -> Choice | None:
        """The lane whose work should start now, or None when nothing should.

        Latency work (and bulk work whose turn is overdue) goes first, the one that must
        start earliest; but if several are late already, the device is divided by time over
        weight, as it is between bulk lanes. Slack is spent in one case only: when a bulk
        step ends before an urgent lane must start, and the arrivals expected until then
        will make that lane's step larger.
        """
        self.wake_ns = MAX_NS
        ready = [lane for lane in lanes if lane.has_work and not self._holds(lane, now_ns)]
        if len(ready) < 2:
            return Choice(ready[0], Turn.ONLY) if ready else None
        urgent: Lane | None = None
        late: Lane | None = None
        bulk: Lane | None = None
        num_late = start_ns = 0
        for lane in ready:
            if lane.is_urgent(now_ns):
                latest = lane.latest_start_ns(self._device.threads, now_ns)
                if urgent is None or latest < start_ns:
                    urgent, start_ns = lane, latest
                if latest < now_ns:
                    num_late += 1
                    if late is None or lane.share_ns < late.share_ns:
                        late = lane
            elif bulk is None or lane.share_ns < bulk.share_ns:
                bulk = lane
        if late is not None and num_late > 1:
            return Choice(late, Turn.LATE)
        if urgent is None:
            assert bulk is not None
            return Choice(bulk, Turn.SHARE)
        if bulk is not None:
            slack_ns = start_ns - now_ns
            if slack_ns > bulk.step_ns and urgent.arrivals.expected(slack_ns, now_ns) > 0:
                return Choice(bulk, Turn.SLACK)
        return Choice(urgent, Turn.URGENT)

    def _holds(self, lane: Lane, now_ns: int) -> bool:
        """It saves energy and can wait; when it no longer can is noted."""
        if not lane.config.energy_saving:
            return False
        until_ns = lane.hold_until_ns(self._device.threads, now_ns)
        if until_ns <= now_ns:
            return False
        self.wake_ns = min(self.wake_ns, until_ns)
        return True

    def choose_threads(self, lane: Lane, free: int, slots: int, now_ns: int) -> tuple[int, float]:
        """Threads for the lane's next step and the predicted time it may take, in ns.

        With a backlog, side-by-side steps waste no time at barriers, and they end at
        different times, so the device is often free for a newcomer. Work that one round
        of steps would finish is better joined, because steps of unequal length leave
        threads idle at the end; and a lone request gets as many threads as help it,
        unless arrivals are expected that would find them all taken.

        Args:
            lane: it has waiting work.
            free: threads that no step uses.
            slots: steps that may still start.
            now_ns: the present.
        """
        cost = lane.cost
        most = self._device.most_threads(free)
        step_ns = float(lane.limit_ns(most, now_ns))
        if free > 1 and slots > 1:
            joined = lane.waiting(most)
            # One client in a closed loop arrives once per step, and finds the device free
            coming = max(lane.arrivals.expected(cost.predict(joined), now_ns) - 1, 0)
            seqs = joined.num_seqs
            steps = min(slots, free, seqs + coming)
            if steps > 1:
                scale = (seqs + coming) / seqs
                threads = min(free // steps, most)
                num_seqs = max(int(seqs * scale) // steps, 1)
                tokens, pairs = int(joined.num_tokens * scale), int(joined.sum_len_sq * scale)
                share = StepShape(num_seqs, tokens // steps, pairs // steps, 0, threads)
                side_ns = cost.predict(share)
                if side_ns > step_ns:
                    return threads, step_ns
                joined_ns = cost.predict(StepShape(seqs + coming, tokens, pairs, 0, most))
                most_ns = side_ns + side_ns // (2 * num_seqs)
                if joined_ns > most_ns:
                    return threads, float(most_ns)
        threads = self.best_threads(lane, most)
        waiting_ns = float(cost.predict(lane.waiting(threads)))
        rounds = min(self._device.threads, self._device.concurrent_steps)
        if slots == 1 and waiting_ns * rounds > step_ns:
            # The last steps of a backlog shrink, so that the threads end together.
            return threads, min(step_ns, waiting_ns / rounds)
        return threads, step_ns

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
