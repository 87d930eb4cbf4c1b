"""Runs: the rule of the jobs of cron entries: the last runs of each entry, with their outcome.

Pure. They are in the HASH ``cron-runs:NAME``, whose fields are ``SLOT JID``; a value is a JSON object of
texts, to which each stage of the job adds its facts. The script keeps the fifty latest runs of an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import simplejson

from pyworkers.protocol import timestamps
from pyworkers.protocol.effects import Effect, NoteRun
from pyworkers.protocol.envelope import encode
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.start import JobStart
from pyworkers.protocol.flow.track import fits
from pyworkers.protocol.status import JobState

FIELD = "cron"
# The runs of a yearly entry are still there at its next slot.
_KEPT_S = 400 * 86_400
_LONGEST_ERROR = 500
# The year 9999 in epoch seconds is smaller.
_LATEST_SLOT = 10**12
_LONGEST_NAME = 1000


@dataclass(frozen=True, slots=True)
class CronRun:
    """One job of a cron entry. Times are in epoch seconds, None if they are not known."""

    slot: int
    """The slot that it was enqueued for; of a triggered run, the second in which it was triggered."""
    jid: str
    state: JobState
    triggered: bool = False
    queue: str = ""
    started_at: float | None = None
    """The start of its last attempt."""
    finished_at: float | None = None
    """The end of its last attempt; None while it waits or runs."""
    error: str = ""
    """Class and message of the last failure, unless it is done."""

    @property
    def duration_s(self) -> float | None:
        """The seconds that its last attempt took; None if it has not ended, or has not started."""
        if self.started_at is None or self.finished_at is None:
            return None
        # The clocks of two hosts may differ.
        return max(0.0, self.finished_at - self.started_at)

    def as_dict(self) -> dict[str, Any]:
        """The run as JSON values."""
        return {**asdict(self), "duration": self.duration_s}


def runs_key(name: str) -> str:
    """The HASH with the runs of an entry, as effects name keys."""
    return f"cron-runs:{name}"


def entered(about: Mapping[str, Any], jid: str, queue: str, at: float | None) -> NoteRun | None:
    """What the push of a job with this field ``cron`` notes. ``at``: when it is due, None for now."""
    state = JobState.WAITING if at is None else JobState.SCHEDULED
    return next(_noted(about, jid, {"state": state, "queue": queue}), None)


def started(start: JobStart) -> Iterable[Effect]:
    """The effects of the start of a run."""
    facts = {"state": JobState.RUNNING, "queue": start.queue}
    facts |= {"started_at": repr(start.now), "finished_at": ""}
    return _noted(start.data.get(FIELD), start.jid, facts)


def effects(ended: Ended) -> Iterable[Effect]:
    """The effects of the end of a run, or of a wait."""
    facts = {"state": ended.ending.state, "queue": ended.queue}
    if ended.ending.final or ended.ending is Ending.RETRY:
        facts |= {"finished_at": repr(ended.now), "error": _error(ended)}
    elif ended.ending is Ending.MISFIT:
        facts |= {"error": _error(ended)}
    return _noted(ended.data.get(FIELD), ended.jid, facts)


def _error(ended: Ended) -> str:
    """Class and message of an error, cut; empty without one."""
    return ": ".join(text for text in (ended.error_class, ended.error_message) if text)[:_LONGEST_ERROR]


def _noted(about: object, jid: str, facts: Mapping[str, str]) -> Iterator[NoteRun]:
    """The effect for a job with this field ``cron``; none for one that another program has written."""
    if not isinstance(about, Mapping) or not fits(jid):
        return
    name, slot = about.get("name"), about.get("slot")
    if not isinstance(name, str) or not name.isprintable() or len(name) > _LONGEST_NAME:
        return
    if type(slot) is not int or not 0 <= slot < _LATEST_SLOT:
        return
    if about.get("triggered"):
        facts = {**facts, "triggered": "1"}
    texts = {field: value.encode(errors="replace").decode() for field, value in facts.items()}
    yield NoteRun(runs_key(name), f"{slot} {jid}", encode(texts).encode(), _KEPT_S)


def read_runs(stored: Mapping[bytes, bytes], most: int = 50) -> list[CronRun]:
    """The runs in the HASH of an entry, the latest first, at most ``most``; invalid ones are left out."""
    latest = sorted(filter(None, map(_identity, stored)), reverse=True)
    found = (_run(slot, jid, stored[b"%d %b" % (slot, jid)]) for slot, jid in latest[:most])
    return [run for run in found if run]


def _identity(field: bytes) -> tuple[int, bytes] | None:
    """Slot and jid of a field; None for an invalid one, also for one with a leading zero."""
    slot, _, jid = field.partition(b" ")
    usable = jid and slot.isdigit() and len(slot) < 13 and (slot == b"0" or slot[:1] != b"0")
    return (int(slot), jid) if usable else None


def _run(slot: int, jid: bytes, packed: bytes) -> CronRun | None:
    try:
        facts = simplejson.loads(packed)
        state = JobState(facts["state"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return CronRun(
        slot,
        jid.decode(errors="replace"),
        state,
        bool(facts.get("triggered")),
        str(facts.get("queue", "")),
        timestamps.of_text(facts.get("started_at")),
        timestamps.of_text(facts.get("finished_at")),
        "" if state is JobState.DONE else str(facts.get("error", "")),
    )
