"""Limits: lets jobs start as the limits over all servers allow, frees slots of dead servers.

Asked by the master; reset by ``api``. It never decides: limits/ask.lua does, by Redis' clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from pyworkers.errors import StoreError
from pyworkers.protocol.effects import Effect, NoteStart, PassSlot
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.limits import Ask, queue_of, ttl_of
from pyworkers.store.calls import Mode, Request, Steps, decoded, every, one, script
from pyworkers.store.transport.replies import integers

# A job whose turn is so near stays where it is: a way through ``schedule`` would cost it a second start.
_NEAR_S = 0.5
_PAGE = 200


class Verdict(StrEnum):
    """What Redis answers."""

    GRANTED = "granted"
    """The job holds its slots."""
    WAIT = "wait"
    """Ask again after ``after_s``: the job stays in the in-progress list."""
    LIMITED = "limited"
    """The job is in ``schedule``."""
    BROKEN = "broken"
    """The job is in ``schedule``, because ``key``, a key of a limit, has a wrong type."""
    GONE = "gone"
    """The job is not in the in-progress list: a reply was lost, or another server has it."""


class AskReply(NamedTuple):
    """The reply to one ask. ``at``: when the job is due in ``schedule``, in epoch seconds."""

    verdict: Verdict
    after_s: float = 0.0
    at: float = 0.0
    key: str = ""


class AskedJob(NamedTuple):
    """An ask with the facts of its job: the bytes in the in-progress list of the queue."""

    ask: Ask
    queue: str
    raw: bytes
    payload: bytes = b""
    """The bytes for ``schedule``; empty: the same."""


def ask(keys: Keys, identity: str, asked: Sequence[AskedJob]) -> Steps[list[AskReply | None]]:
    """Let jobs start; None for one on whose keys Redis refuses commands. Safe to send again."""
    calls = [_ask(keys, identity, about) for about in asked]
    replies: list[AskReply | None] = yield from every([call.commands[0] for call in calls], Mode.LENIENT)
    refused: StoreError | None = None
    for place, call in enumerate(calls):
        if replies[place] is None:
            try:
                # Redis does not know the script yet, perhaps: a single command is sent again with its text.
                replies[place] = yield from call
            except StoreError as error:
                refused = error
    if refused is not None and not any(replies):
        raise refused
    return replies


def frees(identity: str, ask: Ask) -> tuple[Effect, ...]:
    """The effects that free the slots of a job; harmless if it holds none."""
    holder = holder_of(identity, ask)
    return tuple(PassSlot(want.key, holder) for want in ask.wants if not want.window_s)


def starts(identity: str, ask: Ask) -> tuple[Effect, ...]:
    """The effects that note the start of a job, once it is granted."""
    holder = holder_of(identity, ask)
    return tuple(NoteStart(key, holder, ttl_of(window_s)) for key, _, window_s in ask.wants if window_s)


def holder_of(identity: str, ask: Ask) -> str:
    """The member for a run of a job on this server: recognized by its identity once the server is dead."""
    return f"{identity}|{ask.holder}"


class SweptLimits(NamedTuple):
    """The result of a sweep: the numbers of the limits in use, and of the slots that are freed."""

    limits: int
    freed: int


def sweep(keys: Keys) -> Steps[SweptLimits]:
    """Free the slots of dead servers, and call the next jobs."""
    count = freed = 0
    for names in (yield from _pages(keys)):
        count += len(names)
        freed += yield from _sweep(keys, names)
    return SweptLimits(count, freed)


def reset(keys: Keys, name: str) -> Steps[int]:
    """Free all slots, and forget all starts, of a limit and each value of its ``by``.

    One that no job uses is not listed any more. Returns the number of those; 0 if the limit is not in use.
    """
    count = 0
    for names in (yield from _pages(keys)):
        if mine := [
            key for key in names if key == name or (key.startswith(f"{name}:") and not queue_of(key))
        ]:
            yield from _sweep(keys, mine, reset=True)
            count += len(mine)
    return count


def _ask(keys: Keys, identity: str, asked: AskedJob) -> Request[AskReply]:
    ask, queue, raw, payload = asked
    names = [keys.inprogress(queue, identity), keys.schedule, keys.limits, keys.queues]
    args: list[Any] = [raw, payload, f"{queue} {ask.jid}", holder_of(identity, ask), repr(_NEAR_S)]
    for key, most, window_s in ask.wants:
        names += (keys.limit(key), keys.limit_waiting(key))
        args += (key, most, repr(window_s))
    return script("limits/ask", names, args, _ask_reply, keys.namespace)


def _ask_reply(reply: Any) -> AskReply:
    verdict, *rest = [part.decode(errors="replace") for part in reply]
    match Verdict(verdict):
        case Verdict.WAIT:
            return AskReply(Verdict.WAIT, after_s=float(rest[0]))
        case Verdict.LIMITED:
            return AskReply(Verdict.LIMITED, at=float(rest[0]))
        case Verdict.BROKEN:
            return AskReply(Verdict.BROKEN, at=float(rest[0]), key=rest[1])
        case other:
            return AskReply(other)


def _sweep(keys: Keys, page: Sequence[str], *, reset: bool = False) -> Request[int]:
    names = [keys.limits, keys.schedule, keys.queues, keys.owners]
    for key in page:
        names += (keys.limit(key), keys.limit_waiting(key))
    begin = [int(reset), keys.lease(""), keys.tombstone("")]
    return script("limits/sweep", names, [*begin, *page], _freed, keys.namespace)


def _freed(reply: Any) -> int:
    freed, _ = integers(reply)
    return freed


def _pages(keys: Keys) -> Steps[list[list[str]]]:
    """The keys of all limits in use, in portions that one script works off in a moment."""
    names = yield from one("HKEYS", keys.limits, read=lambda reply: [decoded(name) for name in reply])
    return [names[start : start + _PAGE] for start in range(0, len(names), _PAGE)]
