"""CronJob: a cron entry with its state and its last runs, and the steps that read it.

Run by ``CronSet``, and by programs with an event loop; never by the server. It changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, get_args

import simplejson

from pyworkers.api.columns import Column, Kind, Table, Word
from pyworkers.api.schemas import ANY, COUNT, array
from pyworkers.config.cron_entries import load
from pyworkers.protocol import cron, timestamps
from pyworkers.protocol.cron import CronEntry, Origin
from pyworkers.protocol.envelope import encode
from pyworkers.protocol.flow.runs import CronRun, read_runs
from pyworkers.protocol.keys import Keys
from pyworkers.store import cron as cron_store
from pyworkers.store.calls import PAUSE, Steps
from pyworkers.store.cron import StoredCron

# Entries that are checked while the event loop waits: some ten milliseconds.
_AT_A_TIME = 25
SLOTS = 10
"""The next slots of an entry that are shown."""


class CronJob:
    """One entry, as read. ``last`` is its last slot, or the time since which it is known."""

    def __init__(
        self,
        entry: CronEntry,
        paused: bool,
        shadowed: bool,
        last: float | None,
        runs: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self.entry = entry
        self.paused = paused
        self.shadowed = shadowed
        """True for a run-time entry that does not fire: code or configuration declares one of its name."""
        self.last = last
        self._runs = runs or {}

    def __repr__(self) -> str:
        return f"CronJob({self.entry.name!r}, {self.entry.schedule!r})"

    @property
    def name(self) -> str:
        """The unique name of the entry."""
        return self.entry.name

    @property
    def origin(self) -> Origin:
        """Where the entry is declared: code, configuration or run time."""
        return self.entry.origin

    @property
    def state(self) -> str:
        """``paused``, ``shadowed`` or ``active``."""
        return "paused" if self.paused else "shadowed" if self.shadowed else "active"

    @property
    def runs(self) -> list[CronRun]:
        """Its last fifty runs with their outcome, the latest slot first; triggered ones count as well."""
        return read_runs(self._runs)

    @property
    def last_run(self) -> CronRun | None:
        """The run with the latest slot; None if there was none."""
        return next(iter(read_runs(self._runs, 1)), None)

    def next_slots(self, count: int = 1, now: float | None = None) -> list[int]:
        """The next slots in epoch seconds, also of a paused entry."""
        start = time.time() if now is None else now
        return list(islice(cron.slots(self.entry, start, float("inf")), count))

    def as_dict(self, now: float | None = None) -> dict[str, Any]:
        """The entry for JSON; ``last`` and ``next`` are slots in epoch seconds, or None."""
        return CRON.as_dict(self, time.time() if now is None else now)


def _next(job: CronJob, now: float) -> int | None:
    return next(iter(job.next_slots(1, now)), None) if job.state == "active" else None


_TONES = {"dead": "bad", "failed": "bad", "done": "good", "retrying": "warn"}


def outcome(run: CronRun, _now: float = 0.0) -> Sequence[Word]:
    """The state of a run."""
    return [Word(f"{run.state} (triggered)" if run.triggered else str(run.state), _TONES.get(run.state, ""))]


RUN: Table[CronRun] = Table(
    "CronRun",
    Column("slot", Kind.MOMENT, "Slot", schema=COUNT),
    Column("outcome", Kind.WORDS, "State", value=outcome),
    Column("duration", Kind.TOOK, "Took", value=lambda run, _now: run.duration_s, nullable=True),
    Column("started_at", Kind.MOMENT, nullable=True),
    Column("finished_at", Kind.MOMENT, "Ended", nullable=True),
    Column("jid", title="JID", place="jobs"),
    Column("state"),
    Column("triggered", Kind.FLAG),
    Column("queue"),
    Column("error", title="Error", cut=1),
)
CRON: Table[CronJob] = Table(
    "Cron",
    Column("name", title="Name", place="cron", cut=5),
    Column("schedule", Kind.CODE, "Schedule", value=lambda job, _now: job.entry.schedule),
    Column("timezone", title="Time zone", value=lambda job, _now: job.entry.timezone, cut=1),
    Column("class", title="Job", value=lambda job, _now: job.entry.job_class, cut=3),
    Column("args", Kind.PARTS, value=lambda job, _now: list(job.entry.args), schema=array(ANY)),
    Column("queue", title="Queue", value=lambda job, _now: job.entry.queue, place="queues", cut=4),
    Column("misfire", value=lambda job, _now: job.entry.misfire),
    Column("grace", Kind.NUMBER, value=lambda job, _now: job.entry.grace_s),
    Column(
        "retry", Kind.PARTS, value=lambda job, _now: job.entry.retry,
        schema={"type": ["integer", "boolean", "null"]},
    ),
    Column("origin", title="Origin", cut=2),
    Column("next", Kind.MOMENT, "Next", value=_next, nullable=True, live=True),
    Column("last", Kind.MOMENT, nullable=True, about="The last slot."),
    Column("last_run", Kind.RECORD, "Last run", table=RUN, nullable=True, live=True),
    Column("state", title="State", tone=lambda state: "" if state == "active" else "warn", live=True),
)  # fmt: skip
CRON_VIEW: Table[CronJob] = Table(
    "CronView",
    *CRON.columns.values(),
    Column("slots", Kind.PARTS, value=lambda job, now: job.next_slots(SLOTS, now), schema=array(COUNT)),
    Column("runs", Kind.RECORDS, table=RUN),
)


class CronPage(NamedTuple):
    """Some of the entries by name, and the number of all."""

    total: int
    jobs: list[CronJob]


def read_cron_page(keys: Keys, first: int = 0, count: int | None = None) -> Steps[CronPage]:
    """Read ``count`` entries by name, from the one with the index ``first``; None: all of them."""
    stored = yield from cron_store.read(keys)
    entries, declared = yield from _entries(stored)
    shown = entries[first:] if count is None else entries[first : first + count]
    return CronPage(len(entries), (yield from _with_runs(keys, shown, stored, declared)))


def read_cron_job(keys: Keys, name: str) -> Steps[CronJob | None]:
    """Read the active or paused entry of that name; None if there is none."""
    stored = yield from cron_store.read(keys)
    entries, declared = yield from _entries(stored)
    found = [entry for entry in entries if entry.name == name and not _is_shadowed(entry, declared)]
    return next(iter((yield from _with_runs(keys, found[:1], stored, declared))), None)


def _entries(stored: StoredCron) -> Steps[tuple[list[CronEntry], Mapping[str, CronEntry]]]:
    """All entries by name, and the declared ones."""
    declared: dict[str, CronEntry] = {}
    added: list[CronEntry] = []
    for number, (definition, origin) in enumerate(_definitions(stored)):
        if number % _AT_A_TIME == _AT_A_TIME - 1:
            yield from PAUSE
        entry = _loaded(definition, origin)
        if entry is not None and origin == "run time":
            added.append(entry)
        elif entry is not None:
            declared[entry.name] = entry
    return sorted([*declared.values(), *added], key=lambda entry: (entry.name, entry.origin)), declared


def _definitions(stored: StoredCron) -> Iterator[tuple[bytes, Origin]]:
    for text in stored.declared:
        yield from _declared(text)
    for definition in stored.added.values():
        yield definition, "run time"


def _with_runs(
    keys: Keys, entries: Sequence[CronEntry], stored: StoredCron, declared: Mapping[str, CronEntry]
) -> Steps[list[CronJob]]:
    runs = yield from cron_store.runs(keys, [entry.name for entry in entries])
    return [_job(entry, stored, declared, some) for entry, some in zip(entries, runs, strict=True)]


def _job(
    entry: CronEntry, stored: StoredCron, declared: Mapping[str, CronEntry], runs: Mapping[bytes, bytes]
) -> CronJob:
    name = entry.name.encode()
    last = stored.last.get(name)
    return CronJob(
        entry, name in stored.paused, _is_shadowed(entry, declared), timestamps.of_text(last), runs
    )


def _is_shadowed(entry: CronEntry, declared: Mapping[str, CronEntry]) -> bool:
    return entry.origin == "run time" and entry.name in declared


@lru_cache(maxsize=64)
def _declared(text: bytes) -> tuple[tuple[bytes, Origin], ...]:
    """The definitions that a server declares, with their origin."""
    try:
        rows = simplejson.loads(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(filter(None, map(_declared_entry, rows))) if isinstance(rows, list) else ()


def _declared_entry(row: object) -> tuple[bytes, Origin] | None:
    """The definition; None for one of a server of another version."""
    if not isinstance(row, dict):
        return None
    origin = row.pop("origin", None)
    return (encode(row).encode(errors="replace"), origin) if origin in get_args(Origin) else None


@lru_cache(maxsize=4096)
def _loaded(definition: bytes, origin: Origin) -> CronEntry | None:
    """The entry; None for one that another program has written, which the servers log.

    Cached, because a check takes a few tenths of a millisecond.
    """
    try:
        return load(definition, origin)
    except ValueError:
        return None
