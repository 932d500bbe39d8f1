"""No batching: one request at a time, in the order of arrival."""

from __future__ import annotations

from toolchain.simulate.policies.dispatcher import Batch, Dispatcher, take_rows


class NoBatching(Dispatcher):
    """What a model behind a plain HTTP handler and a lock does."""

    splits_lists = False

    def next_batch(self, now_ns: int) -> Batch:
        return take_rows(self.queue, 1)
