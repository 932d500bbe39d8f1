"""How fast work arrives: sliding-window counters that notice a jump."""

from __future__ import annotations

_PART = 8  # the short window is this part of the long one
_SIGMAS_SQ = 9  # a jump is a difference of three standard deviations of a Poisson count
_MOST = 2**20  # arrivals in a window; squares of such numbers stay exact in a double


class SlidingCount:
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
        self._current = min(self._current + count, _MOST)

    def count(self, now_ns: int) -> int:
        """Sequences that arrived in the window that ends at ``now_ns``."""
        self._roll(now_ns)
        left = self._window_ns - (now_ns - self._index * self._window_ns)
        return self._current + int(self._previous * (left / self._window_ns))

    def _roll(self, now_ns: int) -> None:
        index = now_ns // self._window_ns
        if index > self._index:
            self._previous = self._current if index == self._index + 1 else 0
            self._current = 0
            self._index = index


class ArrivalRate:
    """The rate of arrivals: steady over a window, yet quick to follow a jump.

    A window of an eighth of the length runs beside the long one. When the arrivals in it
    are more than three standard deviations from what the long one leads to expect, the
    load has changed and the short one is right. What comes together, such as a list of
    many texts, is one arrival for that decision; what is counted then is sequences.
    """

    __slots__ = ("_last_ns", "_long", "_long_times", "_short", "_short_times", "_window_ns")

    def __init__(self, window_ns: int) -> None:
        short_ns = max(window_ns // _PART, 1)
        self._window_ns = window_ns
        self._long = SlidingCount(window_ns)
        self._short = SlidingCount(short_ns)
        self._long_times = SlidingCount(window_ns)
        self._short_times = SlidingCount(short_ns)
        self._last_ns = -1

    def add(self, count: int, now_ns: int) -> None:
        """A request of ``count`` sequences arrived at ``now_ns``."""
        self._long.add(count, now_ns)
        self._short.add(count, now_ns)
        if now_ns != self._last_ns:
            self._last_ns = now_ns
            self._long_times.add(1, now_ns)
            self._short_times.add(1, now_ns)

    def in_window(self, now_ns: int) -> int:
        """Sequences per window at the present rate."""
        slow = self._long_times.count(now_ns)
        miss = self._short_times.count(now_ns) * _PART - slow
        # The short count's variance is slow / _PART, that of _PART times it _PART * slow
        if miss * miss > _SIGMAS_SQ * _PART * max(slow, _PART):
            return self._short.count(now_ns) * _PART
        return self._long.count(now_ns)

    def expected(self, horizon_ns: int, now_ns: int) -> int:
        """Whole sequences to expect within the next ``horizon_ns``."""
        return int(self.in_window(now_ns) * (max(horizon_ns, 0) / self._window_ns))
