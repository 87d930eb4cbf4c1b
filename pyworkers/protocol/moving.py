"""Moving: which jobs of a queue may move to another Redis, and the text of those on their way.

Pure; used by ``api``. A job may move if nothing in its Redis waits for its end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope

PLACES = ("queue", "schedule", "retry")
"""Where the jobs of a queue wait, as the entries of the list of parked jobs name it."""
INVALID = "it is invalid: not JSON"
AWAITED = "a program waits for its result"
_LOCKED = "it has a lock (unique_for), which stays in its Redis"
_MEMBER = "it is a member of a batch, which stays in its Redis"
# Field: why a job with it stays. The last three are of Sidekiq Pro, sidekiq-unique-jobs and Exq.
_STAYING = {
    "unique_key": _LOCKED,
    "batch": _MEMBER,
    "then": "it is a step of a chain, which stays in its Redis",
    "bid": _MEMBER,
    "lock_digest": _LOCKED,
    "unique_token": _LOCKED,
}
# A score with which ZADD does not fail: it has no more than two digits in its exponent.
_PARKED = re.compile(
    rb"(queue|schedule|retry) (-?(?:inf|[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-][0-9]{1,2})?)) (.*)", re.DOTALL
)
_STATE = re.compile(r"(\S+) (\d{1,15}) (.*)", re.DOTALL)


class MoveState(NamedTuple):
    """A move of a queue that has not ended: its id, its last portion, and the name of the other Redis."""

    queue: str
    id: str
    portion: int
    target: str

    @classmethod
    def parse(cls, queue: str, stored: str) -> MoveState | None:
        """A state as park.lua writes it; None for another text."""
        found = _STATE.fullmatch(stored)
        return cls(queue, found[1], int(found[2]), found[3]) if found else None

    def __str__(self) -> str:
        return f"{self.id} {self.portion} {self.target}"


class ParkedJob(NamedTuple):
    """A job in the list of parked ones: where it was, with which score, and its bytes."""

    place: bytes
    score: bytes
    raw: bytes

    @classmethod
    def parse(cls, entry: bytes) -> ParkedJob:
        """An entry as park.lua writes it; other bytes, of a stranger, have no score."""
        found = _PARKED.fullmatch(entry)
        return cls(found[1], found[2], found[3]) if found else cls(b"queue", b"", entry)

    @property
    def odd(self) -> bool:
        """True for bytes of a stranger."""
        return not self.score

    def __bytes__(self) -> bytes:
        return b"%b %b %b" % self


class Candidate(NamedTuple):
    """A job of a queue, and why it must stay; empty if it may move."""

    raw: bytes
    jid: str
    tracked: bool
    reason: str


def judge(raw: bytes, queue: str, place: str) -> Candidate | None:
    """Whether a job that was read in a place may move; None for a job of another queue."""
    try:
        data = envelope.decode(raw)
    except BadMessageError:
        # In a set, it is of no queue.
        return Candidate(raw, "", False, INVALID) if place == "queue" else None
    if place != "queue" and data.get("queue") != queue:
        return None
    jid = data.get("jid")
    return Candidate(raw, jid if isinstance(jid, str) else "", bool(data.get("track")), _staying(data))


def _staying(data: Mapping[str, Any]) -> str:
    return next((reason for field, reason in _STAYING.items() if data.get(field)), "")
