"""Outbox: the outcomes of one group that are not yet in Redis.

Runs in the master's event loop. It sends nothing itself; the fetcher does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from pyworkers.protocol.outcome import DONE, Report
from pyworkers.protocol.suspects import MARK

# A call of more than 1 GB ends the connection (client-query-buffer-limit), and would be sent again for ever.
MAX_BYTES = 64 * 1024 * 1024

Batch = list[tuple[str, bytes, Report]]
"""Reports, each with the queue and the raw bytes of its job."""


class Outbox:
    """The outcomes to send. ``changed`` is set whenever there may be a reason to exchange.

    ``marked`` returns the report to send for a marked job.
    """

    def __init__(self, marked: Callable[[bytes, Report], Report]) -> None:
        self._marked = marked
        self.changed = asyncio.Event()
        self._reports: Batch = []

    def __len__(self) -> int:
        return len(self._reports)

    def settle(self, queue: str, raw: bytes, report: Report) -> None:
        """Add an outcome, for the next exchange to settle."""
        if raw.endswith(MARK):
            report = self._marked(raw, report)
        self._reports.append((queue, raw, report))
        self.changed.set()

    def portion(self) -> Batch:
        """The oldest outcomes that fit into one call: at least one, because the size of a job is limited."""
        size = 0
        for count, (_, raw, report) in enumerate(self._reports):
            size += len(raw)
            if report.outcome is not DONE:
                size += report.outcome.size
            if size > MAX_BYTES and count:
                return self._reports[:count]
        return self._reports.copy()

    def taken(self, batch: Batch, left: Sequence[int] = ()) -> None:
        """Remove this portion, which is in Redis, except for the places ``left``."""
        self._reports[: len(batch)] = [batch[place] for place in left]

    def clear(self) -> None:
        """Drop all: a peer has the jobs."""
        self._reports.clear()

    def known(self, queue: str) -> Counter[bytes]:
        """The bytes of every job of a queue with an outcome here, with their counts."""
        return Counter(raw for name, raw, _ in self._reports if name == queue)
