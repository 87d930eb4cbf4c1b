"""Deferral: keeps jobs that are enqueued in a block or a transaction, which are pushed later or not at all.

Used in programs that enqueue. The jobs are made when they are enqueued: ids, arguments and client middleware.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pyworkers.client import Client
from pyworkers.enqueueing.interception import gathering, interceptor
from pyworkers.protocol.conditions import NO_OTHERS, Others
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.plans import BatchPlan


class _Kept:
    def __init__(self) -> None:
        self.jobs: list[PushedJob] = []

    def takes(self, _client: object) -> bool:
        return True

    def gather(self, jobs: list[PushedJob], _owner: object) -> None:
        self.jobs += jobs

    def gather_later(self, _jobs: list[PushedJob], _client: object) -> None:
        """The caller decides when they are pushed."""


@contextmanager
def deferred() -> Iterator[list[PushedJob]]:
    """Keep the jobs that are enqueued inside, for ``client.push(jobs)``. They are in no batch.

    ``unique_for`` and ``max_waiting`` count when they are pushed.
    """
    kept = _Kept()
    token = gathering.set(kept)
    try:
        yield kept.jobs
    finally:
        gathering.reset(token)


class DeferringClient(Client):
    """A client whose pushes inside a transaction wait for its commit, unless a test takes them.

    Also a batch does: its members come into it at the commit, in the order of the calls, then it is sent.
    """

    def push(self, jobs: list[PushedJob]) -> Others:
        """As ``Client.push``, after the commit; which of the jobs are duplicates is not known before."""
        return NO_OTHERS if self.push_later(jobs) else super().push(jobs)

    def push_later(self, jobs: list[PushedJob]) -> bool:
        """Push the jobs after the commit; False if they can be pushed now."""
        if not jobs:
            return False
        batch = gathering.get()
        if batch is None or not batch.takes(self):
            return self.defer(partial(super().push, jobs))
        gather = batch.gather_later(jobs, self)
        return gather is not None and self.defer(gather)

    def enlist(self, plan: BatchPlan, owner: object = None) -> None:
        """As ``Client.enlist``, after the commit."""
        enlist = partial(super().enlist, plan, owner)
        if not self.defer(enlist):
            enlist()

    def defer(self, action: Callable[[], object]) -> bool:
        """Do the action after the commit; False if there is no transaction, or a test takes the jobs."""
        return interceptor() is None and self.after_commit(action)

    @abstractmethod
    def after_commit(self, action: Callable[[], object]) -> bool:
        """Do the action after the commit of the transaction that is open here; False if there is none.

        A rollback drops it, also a rollback of the savepoint in which this was called.
        """
