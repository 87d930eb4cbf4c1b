"""Servers: finds servers on this Redis that leave out effects of jobs which this version applies.

Read by the master and by ``pyworkers check``; changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyworkers.protocol.flow import unique
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps, decoded, one
from pyworkers.store.heartbeat import clock
from pyworkers.store.processes.reading import Processes
from pyworkers.store.processes.views import ProcessView
from pyworkers.store.transport.replies import integer

_SOME = 100


@dataclass(frozen=True, slots=True)
class Uninformed:
    """Live servers that leave out effects."""

    older: list[ProcessView]
    """Of an earlier version of pyworkers."""
    foreign: list[ProcessView]
    """Of other programs, if they serve a queue of a pyworkers server or of a unique job, and there are locks
    or batches."""


def uninformed(keys: Keys) -> Steps[Uninformed]:
    """The live servers that leave out effects: live by Redis' clock, for all of them write their own time."""
    now = yield from clock()
    live = [view for view in (yield from Processes(keys).rest()) if not view.silent(now)]
    older = [view for view in live if view.is_older]
    foreign = [view for view in live if view.look is None]
    if foreign:
        shared = {name for view in live if view.look is not None for name in view.queues}
        shared |= yield from _queues_of_locks(keys)
        used = yield from one("EXISTS", keys.locks, keys.batches, read=integer)
        foreign = [view for view in foreign if used and not shared.isdisjoint(view.queues)]
    return Uninformed(older, foreign)


def _queues_of_locks(keys: Keys) -> Steps[set[str]]:
    """The queues of some locks; a long name is shortened there."""
    found = yield from one("SSCAN", keys.locks, 0, "COUNT", _SOME, read=lambda page: page[1])
    return {unique.parts_of(decoded(name).removeprefix(unique.PREFIX))[1] for name in found} - {""}
