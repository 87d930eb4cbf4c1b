"""Finished: what is kept of the last jobs that have ended, where ``keep`` asks for it.

Pure; made in the worker process, read by ``api``. The effect ``KeepFinished`` adds an entry to a STREAM,
which has about as many as ``keep`` says, none of them older. Without ``keep``, a job has no such effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope, timestamps
from pyworkers.protocol.effects import KeepFinished
from pyworkers.protocol.keeping import Keep
from pyworkers.protocol.message import as_count
from pyworkers.protocol.options import is_number

MAX_JOB_BYTES = 4096
"""A longer job is kept without its arguments."""
_MAX_ERROR = 300
_NAMES = ("jid", "class", "queue")


@dataclass(frozen=True, slots=True)
class FinishedFacts:
    """What is known of a job that has ended, apart from the job."""

    state: str
    at: float | None
    """When it ended, in epoch seconds by the worker's clock."""
    duration_s: float = 0.0
    """Of the last run."""
    attempts: int = 1
    worker: str = ""
    """``HOSTNAME:PID`` of the worker process."""
    result_bytes: int | None = None
    """The size of what it returned, as JSON; None if that is not kept."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class FinishedEntry:
    """One job that has ended, as Redis holds it."""

    facts: FinishedFacts
    job: Mapping[str, Any] = field(repr=False)
    """The envelope; class, id and queue alone if the arguments are not kept."""
    has_args: bool = False


def entry(keep: Keep, facts: FinishedFacts, data: Mapping[str, Any], raw: bytes, queue: str) -> KeepFinished:
    """The effect that keeps a job; ``data`` and ``raw`` are its envelope."""
    found: dict[str, Any] = {
        "at": facts.at,
        "state": facts.state,
        "ms": round(facts.duration_s * 1000, 1),
        "attempts": facts.attempts,
        "worker": facts.worker,
        "queue": queue,
    }
    if facts.result_bytes is not None:
        found["result"] = facts.result_bytes
    if facts.error:
        found["error"] = facts.error[:_MAX_ERROR].encode(errors="replace").decode()
    with_args = keep.with_args and len(raw) <= MAX_JOB_BYTES
    job = raw if with_args else envelope.encode(_named(data)).encode(errors="replace")
    key = b"job" if with_args else b"named"
    packed = envelope.encode(found).encode()[:-1] + b',"' + key + b'":' + job + b"}"
    return KeepFinished(keep.name, packed, keep.most, keep.ttl_s)


def _named(data: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(data.get(name, ""))[:_MAX_ERROR] for name in _NAMES}


def read_entry(packed: bytes) -> FinishedEntry | None:
    """An entry as Redis holds it; None for an invalid one."""
    try:
        found = envelope.decode(packed)
    except BadMessageError:
        return None
    job = found.get("job", found.get("named"))
    if not isinstance(job, dict):
        return None
    texts = {name: found[name] for name in ("state", "worker", "error") if isinstance(found.get(name), str)}
    took = found.get("ms")
    facts = FinishedFacts(
        texts.get("state", ""),
        timestamps.read(found.get("at")),
        took / 1000 if is_number(took) and 0 <= took < 1e12 else 0.0,
        as_count(found.get("attempts")) or 0,
        texts.get("worker", ""),
        found.get("result") if type(found.get("result")) is int else None,
        texts.get("error", ""),
    )
    queue = found.get("queue")
    named = {**job, "queue": queue} if isinstance(queue, str) else job
    return FinishedEntry(facts, named, has_args="job" in found)
