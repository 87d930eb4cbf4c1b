"""Cron entries: when they fire, and the job that they enqueue.

Pure; read by the configuration, the application and the master. It never reads a clock: for a given time it
computes the slots (epoch seconds) before and after.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pyworkers.protocol.conditions import Conditions
from pyworkers.protocol.cronlines import candidates, check_grace, check_schedule
from pyworkers.protocol.draft import PushedJob, draft
from pyworkers.protocol.envelope import splice
from pyworkers.protocol.flow import runs

MISFIRES = ("skip", "once", "all")
Origin = Literal["application", "configuration", "run time"]
"""Where an entry was declared: by a decorator, in the file, or while servers run."""
HIDDEN = "(encrypted)"
"""In lists of entries, instead of arguments that are encrypted in their jobs."""
ON_TIME_S = 5.0
"""Seconds for which a slot counts as on time: every policy fires it, even with a shorter grace."""
MOST_MISSED = 1000
"""Slots that the policy ``all`` fires at once; older ones are dropped."""


@dataclass(frozen=True, slots=True)
class CronEntry:
    """A job that is enqueued on a schedule. ``options`` are options of ``Client.enqueue``."""

    name: str
    schedule: str
    queue: str
    job_class: str
    args: tuple[Any, ...] = ()
    timezone: str = "UTC"
    misfire: str = "once"
    grace_s: float = 300.0
    retry: bool | int | None = None
    """None: the handler's own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin = field(default="application", compare=False)


def check(entry: CronEntry) -> None:
    """Raise ValueError, with the text and the reason, for an entry that cannot be fired."""
    check_schedule(entry.schedule)
    try:
        ZoneInfo(entry.timezone)
    except (LookupError, ValueError, OSError) as error:  # OSError: "Europe" is a folder
        raise ValueError(f"{entry.timezone!r} is not a time zone") from error
    if entry.misfire not in MISFIRES:
        raise ValueError(f"{entry.misfire!r} is not a misfire policy: {', '.join(MISFIRES)}")
    if entry.args and entry.options.get("encrypt") and entry.origin == "run time":
        raise ValueError("the arguments of an entry cannot be encrypted: Redis lists them, with the entry")
    check_grace(entry.grace_s)


def slots(entry: CronEntry, after: float, until: float) -> Iterator[int]:
    """Yield the slots in (after, until], in order. ``until`` may be infinite."""
    last = after
    for slot in candidates(entry.schedule, entry.timezone, after):
        if slot > until:
            return
        if slot > last:
            last = slot
            yield slot


def next_slot(entry: CronEntry, after: float) -> int:
    """The first slot later than ``after``. Raises ValueError if there is none within 50 years."""
    for slot in slots(entry, after, math.inf):
        return slot
    raise ValueError(f"{entry.schedule!r} never comes again")


def due(entry: CronEntry, last: float | None, now: float) -> list[int]:
    """The slots in (last, now] to fire now, in order.

    Slots that are on time are fired. Of the slots that were missed by no more than the grace, ``skip`` fires
    none, ``once`` the latest, or none if another slot is on time, and ``all`` each. ``last`` is None for an
    entry that no server has seen before: it has missed no slot.
    """
    if last is None:
        return []
    on_time = list(slots(entry, max(last, now - ON_TIME_S), now))
    if entry.misfire == "skip" or (entry.misfire == "once" and on_time):
        return on_time
    since = max(last, now - max(entry.grace_s, ON_TIME_S))
    return _latest(entry, since, now, 1 if entry.misfire == "once" else MOST_MISSED)


def job_of(entry: CronEntry, slot: int, now: float, jid: str, *, triggered: bool = False) -> PushedJob:
    """The job of one slot, as ``enqueue`` makes it at ``now``. Raises BadArgumentError.

    ``triggered``: enqueued on request, not for one of the entry's slots.
    """
    options = {**entry.options, "jid": jid}
    # An entry of an encrypted job has no arguments, so there is nothing to encrypt.
    options.pop("encrypt", None)
    job = draft(entry.queue, entry.job_class, entry.retry, options).job(entry.args, now)
    return with_slot(job, entry.name, slot, triggered=triggered)


def with_slot(job: PushedJob, name: str, slot: int, *, triggered: bool = False) -> PushedJob:
    """The job with the field ``cron``, which names its entry and its slot; its push notes the run."""
    about = {"name": name, "slot": slot, **({"triggered": True} if triggered else {})}
    job = job._replace(payload=splice(job.payload, {runs.FIELD: about}))
    noted = runs.entered(about, job.jid, job.queue, job.at)
    conditions = job.conditions or Conditions()
    return job._replace(conditions=conditions._replace(run=noted)) if noted else job


def _latest(entry: CronEntry, after: float, until: float, most: int) -> list[int]:
    """The last ``most`` slots in (after, until].

    Searches backwards in steps that double, because a line may fire every second and ``after`` may be a month
    ago.
    """
    span = 60.0
    while True:
        begin = max(after, until - span)
        found = list(slots(entry, begin, until))
        if len(found) >= most or begin == after:
            return found[-most:]
        span *= 2
