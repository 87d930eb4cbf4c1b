"""Batches as people see them: their numbers, their callbacks, their members, page by page.

Run by clients and ``api``, never by the server. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, NamedTuple

from pyworkers.protocol import timestamps
from pyworkers.protocol.flow.plans import GONE, MOST_INNER, BatchStatus, tags_in
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.portions import portions
from pyworkers.store.calls import Command, Mode, Request, Steps, command, decoded, every, one
from pyworkers.store.flow.batches import PORTION
from pyworkers.store.transport.replies import blobs
from pyworkers.store.values import decoded_json

SETS = {"waiting": ":members", "failed": ":failed", "dead": ":dead"}
"""The sets of members, by their state: the ends of their keys."""
STATES = tuple(SETS)
"""The states of listed members: ``waiting`` ones have not run yet; done ones are counted, not listed."""
_EVENTS = ("complete", "success", "death", "cancel")
# The batches whose tags a page looks at.
_MOST_TAGGED = 10_000
# Jobs that follow a group, which a page shows.
_MOST_FOLLOWING = 20


class BatchPage(NamedTuple):
    """Some of the batches, those that run first; and the number of all."""

    total: int
    batches: list[BatchStatus]


@dataclass(frozen=True, slots=True)
class BatchCallback:
    """A job that an event of a batch enqueues: a callback, or one that follows a group."""

    event: str
    """``complete``, ``success``, ``death`` or ``cancel``."""
    queue: str
    job_class: str
    jid: str
    fired_at: float | None = None
    """When it was enqueued, in epoch seconds; None if it still waits for the event."""

    def as_dict(self) -> dict[str, Any]:
        """The callback as JSON values."""
        found = asdict(self)
        return {"event": found.pop("event"), "class": found.pop("job_class"), **found}


@dataclass(frozen=True, slots=True)
class BatchView:
    """One batch with its callbacks."""

    status: BatchStatus
    callbacks: tuple[BatchCallback, ...]

    def as_dict(self) -> dict[str, Any]:
        """The batch for JSON."""
        return {**self.status.as_dict(), "callbacks": [callback.as_dict() for callback in self.callbacks]}


class Member(NamedTuple):
    """A member of a batch: a job, or a batch inside it."""

    id: str
    is_batch: bool


class MemberPage(NamedTuple):
    """Some members in one state; ``cursor`` leads to the next page, 0 at the end."""

    cursor: int
    members: list[Member]


def status(keys: Keys, batch: str) -> Steps[BatchStatus | None]:
    """The status of a batch; None for an unknown one, and for what another program has written."""
    found = (yield from read_batches(keys, [batch])).get(batch)
    return None if found is None else (yield from _with_inner(keys, *found))


def announces(keys: Keys, batch: str) -> Request[bool]:
    """True if the end of this batch is announced to those who wait for its result; False if it is unknown."""
    read = command("HGETALL", keys.batch(batch))
    return Request([read], lambda found: b"answer" in (found[0] or ()), Mode.LENIENT)


def known(keys: Keys) -> Steps[list[BatchStatus]]:
    """All batches, the newest first."""
    ids = yield from one("ZRANGE", keys.batches, 0, -1, read=blobs)
    found = yield from _statuses(keys, map(decoded, ids))
    return sorted(found, key=lambda about: about.created_at, reverse=True)


def read_batch_page(keys: Keys, first: int, count: int, tag: str = "") -> Steps[BatchPage]:
    """Read ``count`` batches from the one with the index ``first``: those that changed last are first.

    A batch that has succeeded comes after those that have not. Expired ones are left out. ``tag``: only those
    with it, of the first 10,000.
    """
    if tag:
        return (yield from _read_tagged(keys, first, count, tag))
    commands = [
        command("ZCARD", keys.batches),
        command("ZRANGE", keys.batches, first, first + count - 1, "REV"),
    ]
    total, ids = yield from every(commands, Mode.LENIENT)
    return BatchPage(total or 0, (yield from _statuses(keys, map(decoded, ids or ()))))


def _read_tagged(keys: Keys, first: int, count: int, tag: str) -> Steps[BatchPage]:
    found: list[str] = []
    for start in range(0, _MOST_TAGGED, PORTION):
        ids = yield from one("ZRANGE", keys.batches, start, start + PORTION - 1, "REV", read=blobs)
        names = [decoded(name) for name in ids]
        stored = yield from every([command("HGET", keys.batch(name), "tags") for name in names], Mode.LENIENT)
        texts = (b"" if text is None else text for text in stored)
        found += [
            name
            for name, text in zip(names, texts, strict=True)
            if tag in tags_in(text.decode(errors="replace"))
        ]
        if len(ids) < PORTION:
            break
    return BatchPage(len(found), (yield from _statuses(keys, found[first : first + count])))


def read_batch(keys: Keys, batch: str) -> Steps[BatchView | None]:
    """Read one batch; None for an unknown one."""
    following = command("LRANGE", f"{keys.batch(batch)}:then", 0, _MOST_FOLLOWING - 1)
    stored, *sizes, jobs = yield from every([*_facts(keys, batch), following], Mode.LENIENT)
    about = _status_of(batch, stored or {}, *sizes)
    if about is None:
        return None
    about = yield from _with_inner(keys, about, stored)
    return BatchView(about, tuple(callbacks_of(stored, jobs or ())))


def read_members(keys: Keys, batch: str, state: str, cursor: int, count: int) -> Steps[MemberPage]:
    """Read about ``count`` members in one of ``STATES``, from the cursor of an earlier page, or 0."""
    scan = command("SSCAN", f"{keys.batch(batch)}{SETS[state]}", cursor, "COUNT", count)
    [page] = yield from every([scan], Mode.LENIENT)
    following, found = page or (0, [])
    ids = sorted(name for name in map(decoded, found) if not name.startswith("hold:"))
    inner = yield from every([command("EXISTS", keys.batch(name)) for name in ids])
    return MemberPage(
        int(following), [Member(name, bool(is_batch)) for name, is_batch in zip(ids, inner, strict=True)]
    )


def members(keys: Keys, batch: str, state: str, most: int) -> Steps[list[str]]:
    """Ids of some members: ``members`` have not run yet, others are ``failed`` or ``dead``."""
    found = yield from one(
        "SSCAN", f"{keys.batch(batch)}:{state}", 0, "COUNT", most, read=lambda page: page[1]
    )
    return sorted(name for name in map(decoded, found[:most]) if not name.startswith("hold:"))


def _with_inner(keys: Keys, about: BatchStatus, stored: Mapping[bytes, bytes]) -> Steps[BatchStatus]:
    """The status with the statuses of the batches inside it."""
    inner = inner_of(stored)
    return about if not inner else replace(about, inner=tuple((yield from _statuses(keys, inner))))


def inner_of(stored: Mapping[bytes, bytes]) -> list[str]:
    """The ids of the first batches inside one."""
    names = (stored.get(b"inner:%d" % number) for number in range(1, MOST_INNER + 1))
    return [decoded(name) for name in names if name is not None]


def _statuses(keys: Keys, ids: Iterable[str]) -> Steps[list[BatchStatus]]:
    return [found.status for found in (yield from read_batches(keys, ids)).values()]


class StoredBatch(NamedTuple):
    """A batch as it was read: its status, and its hash."""

    status: BatchStatus
    stored: Mapping[bytes, bytes]


def read_batches(keys: Keys, ids: Iterable[str]) -> Steps[dict[str, StoredBatch]]:
    """Read these batches, without those inside them; unknown ones are left out."""
    found: dict[str, StoredBatch] = {}
    for some in portions(ids, PORTION):
        calls = [_facts(keys, batch) for batch in some]
        answers = iter((yield from every([sent for call in calls for sent in call], Mode.LENIENT)))
        for batch, call in zip(some, calls, strict=True):
            stored, *sizes = [next(answers) for _ in call]
            if about := _status_of(batch, stored or {}, *sizes):
                found[batch] = StoredBatch(about, stored)
    return found


def _facts(keys: Keys, batch: str) -> list[Command]:
    """The commands whose replies ``_status_of`` takes."""
    key = keys.batch(batch)
    return [command("HGETALL", key), *(command("SCARD", key + part) for part in SETS.values())]


def _status_of(batch: str, stored: Mapping[bytes, bytes], *sizes: int | None) -> BatchStatus | None:
    """The status from the replies to ``_facts``."""
    about = {decoded(name): value.decode(errors="replace") for name, value in stored.items()}
    waiting, failed, dead = (size or 0 for size in sizes)
    try:
        holds, total, done = (int(about[name]) for name in ("open", "total", "done"))
        created_at = float(about["created_at"])
        gone = {kind: int(about.get(kind, 0)) for kind in GONE}
        inner_total = int(about.get("inner", 0))
    except (LookupError, ValueError):
        return None
    return BatchStatus(
        id=batch,
        description=about.get("description", ""),
        kind=about.get("kind", "batch"),
        open=holds > 0,
        total=total,
        pending=waiting - holds + failed,
        lost=total - done - (waiting - holds) - failed - dead - sum(gone.values()),
        done=done,
        failed=failed,
        dead=dead,
        created_at=created_at if isfinite(created_at) else 0.0,
        parent=about.get("parent", "").partition(" ")[2],
        reason=about.get("reason", ""),
        reason_jid=about.get("reason_jid", ""),
        complete_at=timestamps.of_text(about.get("complete_at")),
        success_at=timestamps.of_text(about.get("success_at")),
        death_at=timestamps.of_text(about.get("death_at")),
        cancel_at=timestamps.of_text(about.get("cancel_at")),
        tags=tags_in(about.get("tags", "")),
        inner_total=inner_total,
        inner=(),
        **gone,
    )


def callbacks_of(stored: Mapping[bytes, bytes], following: Sequence[bytes] = ()) -> Iterator[BatchCallback]:
    """The callbacks of a batch, then the jobs that follow a group."""
    for event in _EVENTS:
        if text := stored.get(f"on_{event}".encode()):
            time = stored.get(f"{event}_at".encode())
            fired_at = timestamps.of_text(time)
            yield _callback(event, text, fired_at)
    for text in following:
        yield _callback("success", text, None)


def _callback(event: str, text: bytes, fired_at: float | None) -> BatchCallback:
    """The callback in the form of the script: the queue, a space, the job (flow/batch.py)."""
    queue, _, payload = text.partition(b" ")
    if not payload.startswith(b"{"):
        # The places of the results.
        payload = payload.partition(b" ")[2]
    about = decoded_json(payload, dict) or {}
    job_class, jid = (str(about.get(name, "")) for name in ("class", "jid"))
    return BatchCallback(event, queue.decode(errors="backslashreplace"), job_class, jid, fired_at)
