"""How fast work arrives: a sliding-window counter."""

from __future__ import annotations


class ArrivalRate:
    """Arrivals over about the last ``window_ns``, with two counters instead of a history.

    Time is cut into windows. The estimate is the current window's count plus the part of
    the previous one that the sliding window still covers, so it follows a change within
    one window and is 0 two windows after the last arrival.
    """

    __slots__ = ("_current", "_index", "_previous", "_window_ns")

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._index = 0
        self._current = 0
        self._previous = 0

    def add(self, count: int, now_ns: int) -> None:
        """``count`` sequences arrived at ``now_ns``."""
        self._roll(now_ns)
        self._current += count

    def in_window(self, now_ns: int) -> int:
        """Sequences that arrived in the window that ends at ``now_ns``."""
        self._roll(now_ns)
        left = self._window_ns - (now_ns - self._index * self._window_ns)
        return self._current + int(self._previous * (left / self._window_ns))

    def expected(self, horizon_ns: int, now_ns: int) -> int:
        """Whole sequences to expect within the next ``horizon_ns``."""
        return int(self.in_window(now_ns) * (max(horizon_ns, 0) / self._window_ns))

    def _roll(self, now_ns: int) -> None:
        index = now_ns // self._window_ns
        if index > self._index:
            self._previous = self._current if index == self._index + 1 else 0
            self._current = 0
            self._index = index
