"""Who may begin, or begin again, on a decoder lane: seats, memory and turns."""

from __future__ import annotations

from runtime_py.batching.admission import Admission
from runtime_py.batching.config import SchedulerConfig
from runtime_py.batching.generation import Generation, Sample
from runtime_py.batching.queue import RequestQueue
from runtime_py.batching.residents import Residents
from runtime_py.batching.types import MAX_NS, NS_PER_MS, BoundBy, TrafficClass

_PATIENCE = 4  # bulk work this many times overdue is overtaken by nobody
_MOST_CHARGE_NS = 10.0**12  # keeps accounts exact whatever a profile claims
_HEADROOM = 2  # blocks that a preempted sequence must find free beyond its own; doubles


class Entrance:
    """Admission by memory: a prompt enters when all of it fits, and every running stream
    can still grow by a block.

    The order: preempted samples of the latency class, its queue, then the same of the
    throughput class, which goes first when it is overdue. Nobody is skipped within a
    class, so nothing starves behind smaller requests.

    Attributes:
        blocked, limit: whom the last obstacle kept out, and the limit it met.
        bulk_entered: bulk work was let into the present step.
        token_ns: what a tenant is charged for a token of its prompt.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        admission: Admission,
        residents: Residents,
        queue: RequestQueue,
    ) -> None:
        self._admission = admission
        self._residents = residents
        self._kv = residents.kv
        self._queue = queue
        self._max_wait_ns = config.throughput_max_wait_ms * NS_PER_MS
        self._max_skips = config.throughput_max_skips
        self._max_preemptions = config.max_preemptions
        self.token_ns = 0.0
        self.blocked = -1
        self.limit = 0
        self.bulk_entered = False

    @property
    def waiting(self) -> bool:
        """Somebody wants to begin."""
        return bool(self._residents.preempted) or self._queue.num_seqs > 0

    def first_id(self) -> int:
        """The request that is first in line, or -1."""
        for traffic in _LATENCY_FIRST:
            comer = self._next(traffic)
            if comer is not None:
                return _request(comer).request_id
        return -1

    def overdue(self, now_ns: int, times: int = 1) -> bool:
        """Bulk work has waited for its turn ``times`` as long as it may."""
        bulk = self._queue.throughput
        if self._next(TrafficClass.THROUGHPUT) is None:
            return False
        waited_ns = now_ns - bulk.served_ns
        return waited_ns >= times * self._max_wait_ns or bulk.skips >= times * self._max_skips

    def admit(self, longest: int, busy: bool, now_ns: int) -> BoundBy:
        """Let the first in line begin, if it may.

        Args:
            longest: most tokens that it may have to compute.
            busy: the streams alone take all the time that a step may take.

        Returns:
            ALL if it was let in or nobody waits; otherwise what keeps it out.
        """
        bound = BoundBy.ALL
        overdue = self.overdue(now_ns)
        for traffic in _BULK_FIRST if overdue else _LATENCY_FIRST:
            comer = self._next(traffic)
            if comer is None:
                continue
            bulk = traffic is TrafficClass.THROUGHPUT
            if bulk and busy and not overdue:
                self.blocked = _request(comer).request_id
                return BoundBy.TPOT
            bound = self._obstacle(comer, longest)
            if bound is BoundBy.ALL:
                self._enter(comer)
                self.bulk_entered = self.bulk_entered or bulk
                return bound
            if not (bulk and overdue) or self.overdue(now_ns, _PATIENCE):
                return bound
        return bound

    def make_room(self) -> bool:
        """Preempt bulk samples if that lets the first latency request in; whether it did.

        They were never promised their place, and latency work must not wait until they
        have said all they have to say.
        """
        comer = self._next(TrafficClass.LATENCY)
        residents = self._residents
        if comer is None or self._obstacle(comer, MAX_NS) is BoundBy.ALL:
            return False
        victims = [
            s
            for s in residents.running
            if s.request.traffic is TrafficClass.THROUGHPUT
            and s.preemptions < self._max_preemptions
            and not s.suspect
        ]
        victims.sort(key=lambda s: (s.kv.computed, s.key))
        seats = residents.seats + _seats(comer) - self._admission.max_seqs
        blocks = self._blocks(comer) - self._kv.free_blocks
        count = 0
        while count < len(victims) and (seats > 0 or blocks > 0):
            seats -= victims[count].seats
            blocks -= len(victims[count].kv.blocks)
            count += 1
        if seats > 0 or blocks > 0:
            return False
        for sample in victims[:count]:
            residents.preempt(sample)
        return count > 0

    def note(self, now_ns: int) -> None:
        """A step was filled: count for the bulk class whether it had its turn."""
        bulk = self._queue.throughput
        if self.bulk_entered:
            bulk.skips = 0
            bulk.served_ns = now_ns
        elif self._next(TrafficClass.THROUGHPUT) is not None:
            bulk.skips += 1

    def _next(self, traffic: TrafficClass) -> Sample | Generation | None:
        for sample in self._residents.preempted:
            if sample.request.traffic is traffic:
                return sample
        request = self._queue.of(traffic).head()
        assert request is None or isinstance(request, Generation)
        return request

    def _obstacle(self, comer: Sample | Generation, longest: int) -> BoundBy:
        residents, kv = self._residents, self._kv
        self.blocked = _request(comer).request_id
        self.limit = self._admission.max_seqs
        if residents.seats + _seats(comer) > self.limit:
            return BoundBy.SEQS
        self.limit = kv.free_blocks
        if residents.running and self._blocks(comer) > self.limit:
            return BoundBy.MEMORY
        tokens, salt = _tokens(comer)
        if len(tokens) > longest and len(tokens) - kv.cost(tokens, 1, salt)[0] > longest:
            return BoundBy.TPOT
        return BoundBy.ALL

    def _blocks(self, comer: Sample | Generation) -> int:
        """Free blocks that must be there for it to begin among others."""
        tokens, salt = _tokens(comer)
        need = self._kv.cost(tokens, len(tokens), salt)[1] + len(self._residents.running)
        if isinstance(comer, Generation):
            return need + _seats(comer) - 1
        # The more often it had to go, the more room it needs to see before it tries again;
        # at last so much that nobody's growth can drive it out
        growth = self._growth(comer)
        if comer.preemptions >= self._max_preemptions:
            return need + growth + sum([self._growth(s) for s in self._residents.running])
        return need + min(growth, _HEADROOM << comer.preemptions)

    def _growth(self, sample: Sample) -> int:
        """Blocks that it may still come to need."""
        return -(-sample.remaining // self._kv.block_size)

    def _enter(self, comer: Sample | Generation) -> None:
        if isinstance(comer, Sample):
            self._residents.resume(comer)
            return
        queue = self._queue.of(comer.traffic)
        while comer.num_waiting:
            n = comer.num_tokens[comer.next_item()]
            queue.take(comer, int(min(n * self.token_ns, _MOST_CHARGE_NS)))
        self._residents.admit(comer)


_LATENCY_FIRST = (TrafficClass.LATENCY, TrafficClass.THROUGHPUT)
_BULK_FIRST = (TrafficClass.THROUGHPUT, TrafficClass.LATENCY)


def _request(comer: Sample | Generation) -> Generation:
    return comer.request if isinstance(comer, Sample) else comer


def _seats(comer: Sample | Generation) -> int:
    return comer.seats if isinstance(comer, Sample) else len(comer.num_tokens)


def _tokens(comer: Sample | Generation) -> tuple[list[int] | tuple[int, ...], str]:
    if isinstance(comer, Sample):
        return comer.kv.tokens, comer.kv.salt
    return comer.prompt, comer.salt
