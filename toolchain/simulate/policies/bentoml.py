"""BentoML's adaptive batching (documentation, "Adaptive batching"; behaviour of 1.4).

The dispatcher fits ``latency = a * n + b`` by least squares to its last 50 batches, every
five seconds, and keeps the mean time that the first request of a batch has waited. A free
worker waits for more requests as long as ``n * (wait of the newest + tick + a)`` is at most
0.95 of that mean; the wait so adapts to how arrivals and batches have gone. The oldest
request is cancelled (503) when with ``n`` requests queued ``its wait + a * n + b`` reaches
``max_latency_ms``. The first batches train the fit: nine single requests, then two and three
at a time, which it waits for. Lists count by their items: one that does not fit whole is
split, and the rest keeps its place in the queue.

The real dispatcher looks at its queue every millisecond; here it looks exactly when its
condition can change, which is never later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from runtime_py.batching import BoundBy, FinishReason
from toolchain.simulate.policies.dispatcher import Batch, Dispatcher, Job
from toolchain.simulate.policies.setup import Setup

_TICK_NS = 1_000_000
_KEPT = 50
_SKIPPED = 2  # batches that the fit does not see
_REFRESH_NS = 5_000_000_000
_DECAY = 0.95
_TRAINING = ((8, 8, 1), (6, 1, 1), (5, 1, 2), (3, 1, 3))  # (needed, batches, their size)


class _Optimizer:
    """The fit of a batch's duration, in nanoseconds, to its number of requests."""

    def __init__(self, max_latency_ns: int) -> None:
        self.a = min(2e9, max_latency_ns * 2.0 / 30)
        self.b = min(1e9, max_latency_ns * 1.0 / 30)
        self.wait_ns = 0.0
        self._samples: deque[tuple[int, float, float]] = deque(maxlen=_KEPT)
        self._seen = 0
        self._refreshed_ns = -_REFRESH_NS

    def log(self, n: int, duration_ns: int, wait_ns: int, now_ns: int) -> None:
        """A batch of ``n`` requests ended."""
        self._seen += 1
        if self._seen <= _SKIPPED:
            return
        self._samples.append((n, float(duration_ns), float(wait_ns)))
        if now_ns - self._refreshed_ns >= _REFRESH_NS:
            self._refreshed_ns = now_ns
            self.refresh()

    def refresh(self) -> None:
        """Least squares of one variable; a constant number of requests gives b = 0."""
        samples = self._samples
        if not samples:
            return
        count = len(samples)
        mean_n = sum(n for n, _, _ in samples) / count
        mean_t = sum(t for _, t, _ in samples) / count
        var = sum((n - mean_n) ** 2 for n, _, _ in samples)
        if var > 0:
            a = sum((n - mean_n) * (t - mean_t) for n, t, _ in samples) / var
            b = mean_t - a * mean_n
        else:  # the shortest of the many solutions, as numpy's lstsq gives it
            a = mean_t * mean_n / (mean_n**2 + 1)
            b = mean_t / (mean_n**2 + 1)
        self.a, self.b = max(1000.0, a), max(0.0, b)
        self.wait_ns = max(0.0, sum(w for _, _, w in samples) / count)


class BentoML(Dispatcher):
    """One worker of a service whose API is batchable.

    Args:
        max_batch_size: most items of a batch.
        max_latency_ns: what a request may take; beyond it the oldest are cancelled.
    """

    splits_lists = False

    def __init__(self, setup: Setup, *, max_batch_size: int, max_latency_ns: int) -> None:
        super().__init__(setup)
        self._max_batch = max_batch_size
        self._max_latency_ns = max_latency_ns
        self._fit = _Optimizer(max_latency_ns)
        self._phase = 0
        self._phase_batches = 0
        self._batch_trained = False

    @property
    def _training(self) -> bool:
        return self._phase < len(_TRAINING)

    def expire(self, now_ns: int) -> int:
        """Cancel the oldest while it cannot be in time; when the next one will be."""
        queue, limit_ns = self.queue, self._max_latency_ns
        while queue:
            oldest_ns = queue[0].arrival_ns
            n = len(queue)
            if self._training:
                needed = _TRAINING[self._phase][0] - self._phase_batches
                at_ns = oldest_ns + limit_ns if n > needed else -1
            elif n > 1:
                at_ns = oldest_ns + limit_ns - int(self._fit.a * n + self._fit.b)
            else:
                at_ns = oldest_ns + limit_ns if self.busy else -1
            if at_ns < 0 or at_ns > now_ns:
                return at_ns
            self._cancel(queue.popleft(), now_ns)
        return -1

    def _cancel(self, job: Job, now_ns: int) -> None:
        if job.request.alive:
            self.reject(job.request, FinishReason.DEADLINE, now_ns)

    def next_batch(self, now_ns: int) -> Batch:
        queue, fit = self.queue, self._fit
        while queue and not queue[0].request.alive:
            queue.popleft()
        if not queue:
            return Batch()
        n, size = len(queue), self._max_batch
        if self._training:
            size = min(_TRAINING[self._phase][2], size)
            if size > 1 and n < size:
                wait_ns = min(self._max_latency_ns * 0.95, (2 * size + 1) * fit.a + fit.b)
                until_ns = queue[0].arrival_ns + int(wait_ns - size * fit.a - fit.b)
                if now_ns <= until_ns:
                    return Batch(wake_ns=until_ns + 1)
            size = self._max_batch
        elif n < size:
            until_ns = queue[-1].arrival_ns + int(fit.wait_ns * _DECAY / n - _TICK_NS - fit.a)
            if now_ns <= until_ns:
                return Batch(wake_ns=until_ns + 1)
        self._batch_trained = self._training
        self._advance()
        return self._take(size)

    def _advance(self) -> None:
        """Count a batch of the training."""
        if not self._training:
            return
        self._phase_batches += 1
        if self._phase_batches == _TRAINING[self._phase][1]:
            self._phase += 1
            self._phase_batches = 0
            if self._phase > 1:
                self._fit.refresh()

    def _take(self, max_rows: int) -> Batch:
        batch, rows = Batch(), 0
        queue = self.queue
        while queue and rows < max_rows:
            job = queue.popleft()
            if not job.request.alive:
                continue
            room = max_rows - rows
            if job.rows > room:
                tokens = job.num_tokens
                queue.appendleft(Job(job.request, job.first + room, tokens[room:]))
                job = Job(job.request, job.first, tokens[:room])
            batch.jobs.append(job)
            rows += job.rows
        if queue:
            batch.bound = BoundBy.SEQS
        return batch

    def learn(self, jobs: Sequence[Job], started_ns: int, now_ns: int) -> None:
        waited_ns = 0 if self._batch_trained else started_ns - jobs[0].arrival_ns
        self._fit.log(len(jobs), now_ns - started_ns, waited_ns, now_ns)
