"""What the simulation asks of a workload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from toolchain.simulate.requests import SimRequest


class Workload(Protocol):
    """Requests in arrival order; later ones may depend on the end of earlier ones."""

    def next_ns(self) -> int:
        """When the next request arrives, as far as is known; -1 = none."""
        ...

    def pop(self) -> SimRequest:
        """That request."""
        ...

    def finished(self, request: SimRequest, now_ns: int) -> None:
        """A request ended, well or badly."""
        ...


class OpenWorkload:
    """Arrivals that do not depend on the server.

    Args:
        requests: in arrival order.
    """

    def __init__(self, requests: Iterable[SimRequest]) -> None:
        self._requests = iter(requests)
        self._next = next(self._requests, None)

    def next_ns(self) -> int:
        return self._next.arrival_ns if self._next is not None else -1

    def pop(self) -> SimRequest:
        request = self._next
        assert request is not None
        self._next = next(self._requests, None)
        return request

    def finished(self, request: SimRequest, now_ns: int) -> None:
        """Nobody waits for it before asking again."""
