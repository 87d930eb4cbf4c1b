"""Jobs: the jobs of all places for programs, by the same steps that the dashboard runs in its event loop.

Blocking. It connects at its first use.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from pyworkers.api.actions import Acted
from pyworkers.api.browse.actions import JobAction, Order, act_on
from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.lookup import JobView, read_job
from pyworkers.api.browse.pages import PAGE, JobPage, Row, read_page, read_rows
from pyworkers.api.browse.places import Place
from pyworkers.api.browse.search import Sought, Stretch, read_stretch
from pyworkers.api.target import AtRedis
from pyworkers.errors import BadArgumentError
from pyworkers.protocol.portions import portions
from pyworkers.store.browse.parts import Position


class Jobs(AtRedis):
    """The jobs of all places: page by page, by a filter, and one by its id.

    No method reads a whole place at once. All raise RedisUnavailableError and StoreError.
    """

    def page(self, place: Place, first: int = 0, count: int = PAGE) -> JobPage:
        """The jobs of a place from an index on, at most ``count``; fewer if they are large."""
        return self._admin.run(read_page(self._admin.keys, place, first, count))

    def search(self, place: Place, wanted: Filter) -> Iterator[Row]:
        """The jobs of a place that meet a filter, some thousands looked at in each round trip.

        A job that stays is found at least once, perhaps twice if the place changes fast.
        """
        for stretch in self.stretches(place, wanted):
            yield from stretch.rows

    def stretches(self, place: Place, wanted: Filter) -> Iterator[Stretch]:
        """``search`` part by part: each part says how far the search has come."""
        sought = Sought(place, wanted, time.time())
        begin: Position | None = Position()
        while begin is not None:
            stretch = self._admin.run(read_stretch(self._admin.keys, sought, begin))
            yield stretch
            begin = stretch.after

    def whole(self, place: Place, row: Row) -> Row | None:
        """A row of this place with all bytes of its job, which a large one lacks; None if the job is gone."""
        if not row.job.cut:
            return row
        [found] = self._admin.run(read_rows(self._admin.keys, place, [row.at]))
        return found

    def find(self, jid: str) -> JobView:
        """The job with this id, in any place; its ``job`` is None if no place has it."""
        return self._admin.run(read_job(self._admin.keys, jid, budget_s=float("inf")))

    def act(self, place: Place, action: JobAction, rows: Iterable[Row], *, at: float | None = None) -> Acted:
        """Act on jobs of a page or of a search; those that are gone are left out.

        ``at``: the new time of jobs that are rescheduled, in epoch seconds. Raises BadArgumentError for an
        action that the place does not have.
        """
        try:
            order = Order(place, action, at)
        except ValueError as error:
            raise BadArgumentError(str(error)) from error
        total = Acted()
        for ats in portions([row.at for row in rows], PAGE):
            acted = act_on(self._admin, order, ats)
            done, refused = total.done + acted.done, total.refused + acted.refused
            total = Acted(done, refused, acted.reason or total.reason)
        return total
