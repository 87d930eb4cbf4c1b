"""Events: what the workers of one group and its table of jobs report to their pool.

Made in the master's event loop; the pool applies them one at a time (``Pool.run``). What each job does is no
event: its report goes straight to the outbox.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Closed:
    """The presence pipe of this worker is closed: it has exited, or a job has closed every descriptor."""

    member: int


@dataclass(frozen=True, slots=True)
class Died:
    """The process of this worker has ended; ``status`` as from waitpid, if known."""

    member: int
    status: int | None
    rss_kb: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job waits for a worker of its own."""


@dataclass(frozen=True, slots=True)
class LookDue:
    """It is time to look for jobs that no worker takes."""


Event: TypeAlias = Closed | Died | Waiting | LookDue
Events: TypeAlias = "asyncio.Queue[Event]"
