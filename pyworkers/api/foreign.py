"""Foreign: a dead process of another program, whose jobs are returned to their queues.

Used by the command line and by users' programs. It never decides that a process is dead: a person does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyworkers.api.target import Where, admin_of
from pyworkers.errors import PyworkersError
from pyworkers.store import foreign, queues
from pyworkers.store.foreign import PROGRAMS, ForeignList

__all__ = ["PROGRAMS", "ForeignJobs", "ForeignProcess"]

ForeignJobs = dict[ForeignList, list[bytes]]
"""The jobs in each list of a process, the newest first."""


class ForeignProcess:
    """A process of ``program``, one of PROGRAMS, by the name that its lists have."""

    def __init__(self, program: str, name: str, where: Where = None, *, namespace: str | None = None) -> None:
        """Raises ConfigError."""
        self.program = program
        self.name = name
        self._admin = admin_of(where, namespace)
        self._keys = self._admin.keys

    def check_silent(self, lists: Sequence[ForeignList] = ()) -> None:
        """Raise PyworkersError for a server of pyworkers, and for a process with a recent heartbeat.

        go-workers has no heartbeat. The heartbeat of go-workers2 names its ``lists``.
        """
        if self._admin.run(foreign.is_ours(self._keys, self.name)):
            hint = "its peers recover its jobs by themselves"
            raise PyworkersError(f"{self.name} is a server of pyworkers", hint=hint)
        if identity := self._admin.run(foreign.lives(self._keys, lists, self.name)):
            hint = "stop it, and try again a minute later"
            raise PyworkersError(f"{identity} runs: its heartbeat is less than a minute old", hint=hint)

    def lists(self, names: Sequence[str] = ()) -> list[ForeignList]:
        """The lists of the process for these queues; without names, searched among the names of all keys.

        Raises PyworkersError for a list of no known queue.
        """
        if names:
            return [foreign.named(self._keys, self.program, self.name, name) for name in names]
        lists = self._admin.run(foreign.lists_of(self._keys, self.program, self.name))
        known = self._admin.run(queues.known(self._keys))
        # "a:b" of the process "c" and "a" of "b:c" have the same list.
        for item in lists:
            if item.queue not in known:
                hint = "name the queue with --queue, or the process as its configuration does"
                raise PyworkersError(f"{item.key} is of no known queue: {item.queue}", hint=hint)
        return lists

    def jobs(self, lists: Sequence[ForeignList]) -> ForeignJobs:
        """The jobs in these lists, without the empty ones."""
        found = zip(lists, self._admin.run(foreign.jobs_in(lists)), strict=True)
        return {item: jobs for item, jobs in found if jobs}

    def adopt(self, jobs: ForeignJobs) -> Iterator[tuple[str, int]]:
        """Return these jobs to their queues, each in one step; yields each queue with the number moved."""
        for item, raws in jobs.items():
            yield item.queue, self._admin.run(foreign.adopt(self._keys, item, raws))
