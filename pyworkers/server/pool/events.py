"""Events: what workers, fork servers, the table of jobs and the gates of a group report to its pool.

Made in the master's event loop; the pool applies them one at a time (``Pool.run``). The report of a
job is not an event: it goes straight to the outbox.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeAlias

from pyworkers.server.generations.reaper import ProcessEvent
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.settling import Cause


@dataclass(frozen=True, slots=True)
class Closed:
    """The presence pipe of this worker is closed: it has exited, or a job has closed every descriptor."""

    member: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job waits for its own worker."""


@dataclass(frozen=True, slots=True)
class StartDue:
    """The delay after a failed start is over: missing workers are started."""


@dataclass(frozen=True, slots=True)
class LookDue:
    """It is time to look for jobs that no worker takes."""


@dataclass(frozen=True, slots=True)
class Start:
    """The job may start, as far as this gate knows."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The job may not start yet. ``room`` is kept for it, or it waits to run ``alone`` in its worker."""

    room: bool = True
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """The job does not start: it is settled for this cause."""

    cause: Cause


Decision: TypeAlias = Start | Hold | Settle
START, HOLD, NO_ROOM, ALONE = Start(), Hold(), Hold(room=False), Hold(room=False, alone=True)


@dataclass(frozen=True, slots=True)
class Decided:
    """The gate that holds a job has decided on it."""

    job: Delivery
    decision: Decision


Event: TypeAlias = ProcessEvent | Closed | Waiting | LookDue | StartDue | Decided
Events: TypeAlias = "asyncio.Queue[Event]"
