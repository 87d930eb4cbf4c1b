"""Kinds: each effect that an outcome may carry, as a value.

Pure. A class has the name and the fields of the function that applies it (store/scripts/shared/effects.lua),
and the number that it has in the frames between our processes (lists.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from pyworkers.protocol.envelope import encode
from pyworkers.protocol.keys import Keys, check_queue_name

MAX_LOG_BYTES = 64 * 1024
"""The limit for the log of one job, in bytes of its lines."""


class OneKey:
    """Base of the effects on one key."""

    __slots__ = ()

    key: str
    repeatable: ClassVar[bool] = True
    """True if applying it again changes nothing: a running job may note it (``merge``)."""

    def __post_init__(self) -> None:
        """Raise ValueError for a field that cannot be read at the other end: it would end the worker."""
        for field in fields(type(self)):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if type(value).__name__ != field.type:
                raise ValueError(f"{field.name} is of type {field.type}, not {type(value).__name__}")
            if field.name == "ttl_s" and value < 1:
                raise ValueError(f"a TTL of {value} s is not from 1")

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.own(self.key)]


@dataclass(frozen=True, slots=True)
class Unlock(OneKey):
    """Delete a STRING if its value is ``token``: a lock that the job still holds."""

    NUMBER: ClassVar[int] = 0
    key: str
    token: str


@dataclass(frozen=True, slots=True)
class FreeSlot(OneKey):
    """Remove ``member`` from a ZSET or a SET of slots."""

    NUMBER: ClassVar[int] = 1
    key: str
    member: str


@dataclass(frozen=True, slots=True)
class PassSlot(OneKey):
    """Remove ``member`` from the holders of a limit (limits.py), and call the job that has waited longest.

    ``key`` is the key of the limit, with the value of its ``by``.
    """

    NUMBER: ClassVar[int] = 11
    key: str
    member: str

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.limit(self.key), keys.limit_waiting(self.key), keys.schedule, keys.queues]


@dataclass(frozen=True, slots=True)
class NoteStart(OneKey):
    """Note that a job for which a rate has granted a start has started by now (limits.py).

    ``member`` is among the starts since then. The key expires after ``ttl_s`` seconds.
    """

    NUMBER: ClassVar[int] = 16
    key: str
    member: str
    ttl_s: int

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.limit(self.key)]


@dataclass(frozen=True, slots=True)
class CountOut(OneKey):
    """Subtract 1 from a field of a HASH; if the field is then 0, push the job ``payload`` to ``queue``.

    The queue is added to the set of all queues, as for any pushed job. If the hash or the field is missing,
    because it has expired or was deleted, nothing happens. For batches: each member subtracts itself, and the
    last one enqueues the callback.
    """

    NUMBER: ClassVar[int] = 2
    key: str
    field: str
    queue: str
    payload: bytes
    repeatable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        OneKey.__post_init__(self)
        check_queue_name(self.queue)

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.own(self.key), keys.queue(self.queue), keys.queues]


@dataclass(frozen=True, slots=True)
class StoreValue(OneKey):
    """Set a STRING to ``value`` for ``ttl_s`` seconds; a key of another type is not changed."""

    NUMBER: ClassVar[int] = 3
    key: str
    value: bytes
    ttl_s: int


@dataclass(frozen=True, slots=True)
class StoreFields(OneKey):
    """Set fields of a HASH, whose TTL is then ``ttl_s`` seconds. ``fields``: a JSON object with texts."""

    NUMBER: ClassVar[int] = 9
    key: str
    fields: bytes
    ttl_s: int

    @classmethod
    def of(cls, key: str, values: Mapping[str, str], ttl_s: int) -> StoreFields:
        """The effect for these fields."""
        # Lua's reader of JSON refuses lone surrogates.
        text = encode({name: value.encode(errors="replace").decode() for name, value in values.items()})
        return cls(key, text.encode(), ttl_s)


@dataclass(frozen=True, slots=True)
class Announce(OneKey):
    """Replace a STREAM by one entry with ``value`` in its field ``v``, for ``ttl_s`` seconds.

    For readers that wait until it is there, and for later ones (XREAD from 0).
    """

    NUMBER: ClassVar[int] = 10
    key: str
    value: bytes
    ttl_s: int


class _OfAnIteration(OneKey):
    """Base of the effects on the state of an iteration, which is Sidekiq's key; ``key`` is the job's id."""

    __slots__ = ()

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.iteration(self.key)]


@dataclass(frozen=True, slots=True)
class StoreIteration(_OfAnIteration):
    """As StoreFields, for the state of an iteration."""

    NUMBER: ClassVar[int] = 14
    key: str
    fields: bytes
    ttl_s: int


@dataclass(frozen=True, slots=True)
class DeleteIteration(_OfAnIteration):
    """Delete the state of an iteration."""

    NUMBER: ClassVar[int] = 15
    key: str


@dataclass(frozen=True, slots=True)
class DeleteKey(OneKey):
    """Delete a key of any type."""

    NUMBER: ClassVar[int] = 4
    key: str


@dataclass(frozen=True, slots=True)
class DeleteField(OneKey):
    """Delete a field of a HASH."""

    NUMBER: ClassVar[int] = 5
    key: str
    field: str


class _OfAQueue:
    """Base of the effects on a queue."""

    __slots__ = ()

    queue: str

    def __post_init__(self) -> None:
        """Raise ValueError for a name that cannot be a queue."""
        check_queue_name(self.queue)


@dataclass(frozen=True, slots=True)
class Push(_OfAQueue):
    """Push the job ``payload`` to ``queue``, which is added to the set of all queues."""

    NUMBER: ClassVar[int] = 6
    queue: str
    payload: bytes
    repeatable: ClassVar[bool] = False

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.queue(self.queue), keys.queues]


class _OfABatch:
    """Base of the effects on a batch. The scripts make the names of its other keys."""

    __slots__ = ()

    batch: str
    repeatable: ClassVar[bool] = False

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.batch(self.batch), keys.queues]


@dataclass(frozen=True, slots=True)
class CountMember(_OfABatch):
    """Count a member of a batch, by the kind of its end.

    It is ``done``, ``failed`` (waits for a retry), ``dead``, ``dropped`` (after its last failure),
    ``cancelled``, ``deleted``, ``expired`` or ``replaced``, which is counted out. Fires the callbacks that
    are due, in the batches around it, too. ``place`` is where ``result``, JSON, is among the results; -1 for
    none. Nothing happens for an unknown batch, or for a member that is done.
    """

    NUMBER: ClassVar[int] = 7
    batch: str
    member: str
    state: str
    place: int = -1
    result: bytes = b""


@dataclass(frozen=True, slots=True)
class HoldHead(OneKey):
    """Have an ordered queue wait ``delay_ms`` while the job with this SHA-1 is at its head."""

    NUMBER: ClassVar[int] = 12
    key: str
    delay_ms: int
    head: str


@dataclass(frozen=True, slots=True)
class PauseQueue(_OfAQueue):
    """Pause a queue."""

    NUMBER: ClassVar[int] = 13
    queue: str
    repeatable: ClassVar[bool] = True

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.paused]


@dataclass(frozen=True, slots=True)
class NoteRun(OneKey):
    """Add facts to a run of a cron entry (flow/runs.py), in a HASH whose TTL is then ``ttl_s`` seconds.

    ``facts``: a JSON object with texts. The fifty runs with the latest slots stay. A key of another type is
    not changed, and is no error: an entry fires without it, too.
    """

    NUMBER: ClassVar[int] = 17
    key: str
    run: str
    facts: bytes
    ttl_s: int


@dataclass(frozen=True, slots=True)
class AppendLog(OneKey):
    """Add lines to the log of a job (flow/joblog.py), whose TTL is then ``ttl_s`` seconds.

    ``lines`` are separated by newlines. The lines of one ``run`` have numbers from ``first`` on: a line
    that the log has is not added again. The oldest lines are removed beyond ``MAX_LOG_BYTES``.
    """

    NUMBER: ClassVar[int] = 18
    key: str
    run: str
    first: int
    lines: bytes
    ttl_s: int

    def after(self, before: AppendLog) -> AppendLog:
        """Both in one, without the oldest lines beyond the limit."""
        first = self.first - before.lines.count(b"\n") - 1
        lines = before.lines + b"\n" + self.lines
        if len(lines) > MAX_LOG_BYTES:
            cut = lines.find(b"\n", len(lines) - MAX_LOG_BYTES) + 1
            first, lines = first + lines.count(b"\n", 0, cut), lines[cut:]
        return AppendLog(self.key, self.run, first, lines, self.ttl_s)


@dataclass(frozen=True, slots=True)
class EndLog(OneKey):
    """Add the end of a run to the log of a job, if it has one; its TTL is then ``ttl_s`` seconds."""

    NUMBER: ClassVar[int] = 19
    key: str
    line: bytes
    ttl_s: int
    repeatable: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class KeepFinished:
    """Add a job that has ended to the list ``name`` of finished jobs (flow/finished.py).

    The list has about ``most`` jobs, none that ended more than ``ttl_s`` seconds ago.
    """

    NUMBER: ClassVar[int] = 20
    name: str
    entry: bytes
    most: int
    ttl_s: int
    repeatable: ClassVar[bool] = False

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.finished_jobs(self.name), keys.finished]


Effect = (
    Unlock | FreeSlot | CountOut | StoreValue | DeleteKey | DeleteField | Push | CountMember
    | StoreFields | Announce | PassSlot | HoldHead | PauseQueue | StoreIteration | DeleteIteration
    | NoteStart | NoteRun | AppendLog | EndLog | KeepFinished
)  # fmt: skip
