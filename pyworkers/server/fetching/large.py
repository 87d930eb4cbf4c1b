"""Large: settles large jobs by an extract instead of all their bytes, where this is safe.

Runs in the master's event loop. It keeps the order in which large jobs were fetched, which is the one of
their in-progress list; if it does not know a place, only the search takes longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyworkers.protocol.extract import LARGE_BYTES, Extract, equal_extracts, extract
from pyworkers.protocol.outcome import Fate
from pyworkers.server.fetching.outbox import Batch, Outbox
from pyworkers.server.pool.deliveries import Deliveries

_NOTHING: Mapping[int, Extract] = {}
# The order of so many jobs is kept at most; a group has fewer large ones in work.
_MOST = 10_000


class LargeJobs:
    """The large jobs of a group that are not settled."""

    def __init__(self, deliveries: Deliveries, outbox: Outbox) -> None:
        self._deliveries = deliveries
        self._outbox = outbox
        self._order: dict[int, int] = {}
        """By the identity of a job's bytes, because their hash takes as long as a copy."""
        self._fetched = 0

    def note(self, jobs: Sequence[bytes]) -> None:
        """Note the order of fetched jobs, if one of them is large."""
        if sum(map(len, jobs)) <= LARGE_BYTES:
            return
        if len(self._order) > _MOST:
            self._order.clear()
        for raw in jobs:
            self._fetched += 1
            self._order[id(raw)] = self._fetched

    def settled(self, batch: Batch) -> None:
        """Forget jobs whose outcome is in Redis."""
        if self._order:
            for _, raw, report in batch:
                if report.outcome.fate is not Fate.NOTE:
                    self._order.pop(id(raw), None)

    def extracts(self, batch: Batch) -> Mapping[int, Extract]:
        """The extracts of the large jobs of a batch, by their places in it, from 0.

        A large job without one is settled by all its bytes: another job of the list has an equal extract,
        but differs. If the wrong one of the two were removed, it would be lost in a crash while it runs.
        """
        if not self._order:
            return _NOTHING
        found = {}
        removed: set[int] = set()
        for place, (queue, raw, report) in enumerate(batch):
            if len(raw) > LARGE_BYTES:
                known = self._deliveries.raws(queue) + self._outbox.raws(queue)
                if not any(equal_extracts(raw, other) for other in known):
                    mine = self._order.get(id(raw), 0)
                    older = [o for o in known if self._order.get(id(o), 0) < mine and id(o) not in removed]
                    found[place] = extract(raw, len(known), -1 - len(older))
            if report.outcome.fate is not Fate.NOTE:
                removed.add(id(raw))
        return found
