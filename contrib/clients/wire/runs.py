"""Runs: the vectors of what a worker writes when a job starts and ends: effects of the exchange script.

``job`` is the envelope; ``now`` are epoch seconds. ``effects`` has the name of each effect, its keys without
the namespace, and its arguments, in the order of the script. ``result`` is what the job returned, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args

from contrib.clients.wire.envelopes import BATCH, JID, NOW
from contrib.clients.wire.pushes import texts
from contrib.reference.tables import code, table
from pyworkers.protocol.effects import Effect, arguments, name_of
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.rules import effects_of, effects_of_start
from pyworkers.protocol.flow.start import JobStart
from pyworkers.protocol.keys import Keys

_KEYS = Keys()
_STEP = {"queue": "mail", "class": "Add", "args": [None], "jid": "f1", "fill": {"RESULT": [[0]]}}
_JOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tracked": {"track": 3600},
    "tracked, as a word": {"track": True},
    "tracked with history": {"track": 60, "history": True},
    "unique": {"unique_for": 60, "unique_key": "Add|mail|00"},
    "unique until the start": {"unique_for": 60, "unique_key": "Add|mail|00", "unique_until": "start"},
    "unique by time": {"unique_for": 60, "unique_key": "Add|mail|00|expiry", "unique_until": "expiry"},
    "a member": {"batch": BATCH},
    "a member with a result": {"batch": BATCH, "batch_index": 2},
    "a step of a chain": {"batch": BATCH, "then": {"v": 2, "steps": [{**_STEP, "batch": BATCH}]}},
    "a checkpoint": {"checkpoint": True},
    "failed before": {"track": 60, "retry_count": 1, "failed_at": NOW - 60},
    "of a cron entry": {"cron": {"name": "nightly", "slot": 1795224600}},
    "of a cron entry, by hand": {"cron": {"name": "nightly", "slot": 1795224600, "triggered": True}},
    "fields of other types": {"track": -1, "unique_key": 7, "batch": [], "then": 1, "history": "yes"},
}
_ENDS: dict[Ending, dict[str, Any]] = {
    Ending.DONE: {"result": b'{"n":1}'},
    Ending.RETRY: {"error_class": "ValueError", "error_message": "no"},
    Ending.MISFIT: {"error_class": "UnknownJobError", "error_message": "no"},
    Ending.DEAD: {"error_class": "ValueError", "error_message": "no"},
    Ending.DISCARDED: {},
    Ending.DROPPED: {"error_class": "ValueError", "error_message": "no"},
    Ending.CANCELLED: {},
    Ending.EXPIRED: {},
    Ending.PUT_OFF: {},
    Ending.GIVEN_BACK: {},
}


def start_cases() -> list[dict[str, Any]]:
    """The effects of starts, which a worker notes while the job runs."""
    found = []
    for name, given in _JOBS.items():
        job, attempt = _job(given), 2 if "retry_count" in given else 0
        start = JobStart(job, JID, "mail", attempt, NOW, lambda: "host:7")
        found.append(
            {"name": name, "job": job, "attempt": attempt, "now": NOW, **_effects(effects_of_start(start))}
        )
    return found


def end_cases() -> list[dict[str, Any]]:
    """The effects of ends, in the call that settles the job."""
    found = []
    for name, given in _JOBS.items():
        for ending, facts in _ENDS.items():
            job = _job(given)
            ended = Ended(ending, job, JID, "mail", "Add", NOW, **facts)
            about = {
                field: value.decode() if isinstance(value, bytes) else value for field, value in facts.items()
            }
            case = {"name": f"{name}: {ending}", "job": job, "ending": ending.value, "now": NOW, **about}
            found.append({**case, **_effects(effects_of(ended))})
    return found


def _job(given: dict[str, Any]) -> dict[str, Any]:
    return {"queue": "mail", "class": "Add", "args": [1], "jid": JID, "created_at": NOW, **given}


def _effects(found: tuple[Effect, ...]) -> dict[str, Any]:
    return {"effects": [[name_of(one), one.keys(_KEYS), texts(arguments(one))] for one in found]}


def effects_table() -> str:
    """The table of effects on the page of the wire: names, keys and arguments."""
    return table(("effect", "keys", "arguments"), map(_row, get_args(Effect)))


def _row(kind: type[Effect]) -> tuple[str, str, str]:
    examples: dict[str, Callable[[str], Any]] = {"str": str.upper, "int": lambda _: 1, "bytes": str.encode}
    make: Callable[..., Effect] = kind
    made = make(**{field.name: examples[str(field.type)](field.name) for field in fields(kind)})
    named = [field.name for field in fields(kind)]
    asked = named[len(named) - len(arguments(made)) :]
    return code(name_of(made)), ", ".join(map(code, made.keys(_KEYS))), ", ".join(map(code, asked))
