"""Failures: the vectors of what becomes of a job that fails, does not fit, is invalid, or is given back.

``stored`` is the job as a worker took it, ``raised`` what happened, ``now`` are epoch seconds. The outcome
has the fate of the exchange script, the earliest and the latest time of a retry, and the ``payload``: the
members count, and their values; ``null`` is the job as it is.
"""

from __future__ import annotations

import json
from typing import Any

from contrib.clients.wire.envelopes import JID, NOW
from pyworkers.protocol import retry
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Outcome
from pyworkers.protocol.retry import Failure, Policy

_BASE: dict[str, Any] = {"queue": "mail", "class": "Add", "args": [1], "jid": JID, "created_at": NOW - 9.5}
_AGAIN: dict[str, Any] = {
    **_BASE,
    "retry_count": 2,
    "failed_at": NOW - 60.5,
    "error_class": "A",
    "error_message": "a",
}
_BEFORE: dict[str, Any] = {"misfits": 3, "misfit_at": NOW - 600.5, "failed_at": NOW - 600.5}
_JOBS: dict[str, dict[str, Any]] = {
    "plain": _BASE,
    "no id, no queue": {"class": "Add", "args": []},
    "retried before": _AGAIN,
    "the last retry": {**_BASE, "retry": True, "retry_count": 23, "failed_at": NOW - 60.5},
    "no retry is left": {**_BASE, "retry": True, "retry_count": 24, "failed_at": NOW - 60.5},
    "three retries": {**_BASE, "retry": 3},
    "three retries, used up": {**_AGAIN, "retry": 3},
    "no retries": {**_BASE, "retry": 0},
    "dropped": {**_BASE, "retry": False},
    "dropped when used up": {**_BASE, "retry": 0, "dead": False},
    "retries as a text": {**_BASE, "retry": " 1 "},
    "false as a text": {**_BASE, "retry": "false"},
    "retries as another text": {**_BASE, "retry": "many"},
    "retries with a fraction": {**_AGAIN, "retry": 3.7},
    "retries below 0": {**_BASE, "retry": -2},
    "retries as a list": {**_AGAIN, "retry": [1]},
    "retry_max": {**_AGAIN, "retry": True, "retry_max": 3},
    "retry_max as a text": {**_BASE, "retry_max": "5"},
    "retry_for": {**_AGAIN, "retry_for": 3600},
    "retry_for, used up": {**_AGAIN, "retry_for": "30"},
    "retry_for of the first failure": {**_BASE, "retry": 0, "retry_for": 1},
    "a retry_for that is invalid": {**_AGAIN, "retry_for": "soon"},
    "another queue": {**_BASE, "retry_queue": "slow"},
    "another queue that is invalid": {**_BASE, "retry_queue": "queue:slow"},
    "a scheduled job": {**_BASE, "at": NOW - 5},
    "a traceback of before": {**_AGAIN, "error_backtrace": "eJyLVkpU0lFKUooFAA9yAoM="},
    "was a misfit": {**_BASE, **_BEFORE},
    "was a misfit after a failure": {**_AGAIN, "misfits": 3, "misfit_at": NOW - 5.5},
    "times of other programs": {
        **_BASE, "created_at": 1795225187, "enqueued_at": "2026-11-21T01:39:50Z",
        "failed_at": "2026-11-21 01:39:52 UTC",
    },
    "milliseconds": {**_AGAIN, "created_at": 1795225187123, "failed_at": 1795225190123},
    "a count as a text": {**_BASE, "retry_count": "1", "failed_at": NOW - 9.5},
    "a count below 0": {**_BASE, "retry_count": -1, "failed_at": NOW - 9.5},
    "a large number and another field": {**_BASE, "n": 123456789012345678901234567890, "x": {"a": [1.5]}},
    "an expiry": {**_BASE, "expiry": NOW + 60},
    "crashed before": {**_BASE, "retry": 0, "crash_count": 1},
}  # fmt: skip
_MISFITS = (
    "plain",
    "no id, no queue",
    "retried before",
    "dropped when used up",
    "was a misfit",
    "times of other programs",
)
_LONG_AGO = {**_BASE, "misfits": 10, "misfit_at": NOW - 3600.5, "failed_at": NOW - 3600.5}
_RECENT = {**_BASE, "misfits": 9, "misfit_at": NOW - 3600.5, "failed_at": NOW - 3600.5}
_INVALID = {
    "no class": _BASE | {"class": 7},
    "an invalid id": {"class": "Add", "jid": [1], "failed_at": NOW - 5.5, "retry_count": 0},
}


class _Earliest:
    def randrange(self, stop: int, /) -> int:
        return 0

    def getrandbits(self, k: int, /) -> int:
        return 0


class _Latest(_Earliest):
    def randrange(self, stop: int, /) -> int:
        return stop - 1


def cases() -> list[dict[str, Any]]:
    """The outcomes of failures, of misfits, of invalid jobs, and of jobs that are given back."""
    failure, unknown = Failure("ValueError", "no"), Failure("UnknownJobError", "no")
    found = [_failed(f"failed: {name}", job, failure) for name, job in _JOBS.items()]
    found.append(_failed("failed: a long message", _BASE, Failure("ValueError", "é" * 10_001)))
    misfits = {name: _JOBS[name] for name in _MISFITS} | {"for an hour": _LONG_AGO, "nine times": _RECENT}
    for name, job in misfits.items():
        outcomes = [retry.misfit(_message(job), unknown, NOW, rng) for rng in (_Earliest(), _Latest())]
        found.append(_case(f"misfit: {name}", job, "misfit", outcomes, unknown))
    for name, job in _INVALID.items():
        payload = retry.refused(json.dumps(job).encode(), "no", "mail", NOW)
        found.append(
            {
                **_about(f"invalid: {name}", job, "invalid"),
                "error": ["BadMessageError", "no"],
                "fate": 2,
                "payload": _read(payload),
            }
        )
    for name in ("plain", "an expiry", "was a misfit", "was a misfit after a failure"):
        outcome = retry.given_back(json.dumps(_JOBS[name]).encode())
        found.append(_case(f"given back: {name}", _JOBS[name], "given back", [outcome], None))
    return found


def _failed(name: str, job: dict[str, Any], failure: Failure) -> dict[str, Any]:
    outcomes = [retry.decide(_message(job), failure, Policy(), NOW, rng) for rng in (_Earliest(), _Latest())]
    return _case(name, job, "failed", outcomes, failure)


def _case(
    name: str, job: dict[str, Any], raised: str, outcomes: list[Outcome], failure: Failure | None
) -> dict[str, Any]:
    first, last = outcomes[0], outcomes[-1]
    about = _about(name, job, raised) | {"fate": int(first.fate), "payload": _read(first.payload)}
    if failure is not None:
        about["error"] = [failure.error_class, failure.error_message]
    return {**about, "at": [first.at, last.at]} if first.at else about


def _about(name: str, job: dict[str, Any], raised: str) -> dict[str, Any]:
    return {"name": name, "raised": raised, "now": NOW, "stored": json.dumps(job)}


def _message(job: dict[str, Any]) -> Message:
    return Message.parse(json.dumps(job).encode(), "mail", lambda: JID)


def _read(payload: bytes) -> Any:
    return json.loads(payload) if payload else None
