"""Effects: a few writes that an outcome may carry, as values.

Pure; made in the worker process by links, applied by the exchange script together with the settlement of the
job: only if the script removed one entry from the in-progress list. So each runs once, also if the worker,
the server or Redis dies in between, or if the same outcome is sent twice. An effect that Redis refuses
(WRONGTYPE) is logged; the settlement and the other effects still take place.

A running job may note effects (``Execution.note``): they are applied if the job is still in its in-progress
list, and perhaps twice.

Only an outcome that a worker process reports carries effects: a link adds them to the outcome that it returns
(``Outcome.with_effects``), and ``Worker.effects`` adds them to every outcome, also of a job that raised. A
job whose worker died or was killed has none, and a job that is cancelled, deleted or killed in Redis has
none.

Keys are named without the namespace and the prefix ``pyworkers:``, which are added to all of them: an effect
cannot change keys of Sidekiq, and ``pyworkers acl`` grants the rights.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, get_args

import simplejson

from pyworkers.protocol.envelope import encode
from pyworkers.protocol.keys import Keys, check_queue_name

MAX_BYTES = 16 * 1024 * 1024
"""The limit for all effects of one outcome: they are held in the server's memory, and run in one script."""
_LENGTH = struct.Struct("!I")


class _OneKey:
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
class Unlock(_OneKey):
    """Delete a STRING if its value is ``token``: a lock that the job still holds."""

    key: str
    token: str


@dataclass(frozen=True, slots=True)
class FreeSlot(_OneKey):
    """Remove ``member`` from a ZSET or a SET of slots."""

    key: str
    member: str


@dataclass(frozen=True, slots=True)
class PassSlot(_OneKey):
    """Remove ``member`` from the holders of a limit (limits.py), and call the job that has waited longest.

    ``key`` is that of the limit, with the value of its ``by``.
    """

    key: str
    member: str

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.limit(self.key), keys.limit_waiting(self.key), keys.schedule, keys.queues]


@dataclass(frozen=True, slots=True)
class CountOut(_OneKey):
    """Subtract 1 from a field of a HASH; if the field is then 0, push the job ``payload`` to ``queue``.

    The queue is added to the set of all queues, as for any pushed job. If the hash or the field is missing,
    because it has expired or was deleted, nothing happens. For batches: each member subtracts itself, and the
    last one enqueues the callback.
    """

    key: str
    field: str
    queue: str
    payload: bytes
    repeatable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _OneKey.__post_init__(self)
        check_queue_name(self.queue)

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.own(self.key), keys.queue(self.queue), keys.queues]


@dataclass(frozen=True, slots=True)
class StoreValue(_OneKey):
    """Set a STRING to ``value`` for ``ttl_s`` seconds; a key of another type is not changed."""

    key: str
    value: bytes
    ttl_s: int


@dataclass(frozen=True, slots=True)
class StoreFields(_OneKey):
    """Set fields of a HASH, whose TTL is then ``ttl_s`` seconds. ``fields``: a JSON object with texts."""

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
class Announce(_OneKey):
    """Replace a STREAM by one entry with ``value`` in its field ``v``, for ``ttl_s`` seconds.

    For readers that wait until it is there, and for later ones (XREAD from 0).
    """

    key: str
    value: bytes
    ttl_s: int


class _OfAnIteration(_OneKey):
    """Base of the effects on the state of an iteration, which is Sidekiq's key; ``key`` is the job's id."""

    __slots__ = ()

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.iteration(self.key)]


@dataclass(frozen=True, slots=True)
class StoreIteration(_OfAnIteration):
    """As StoreFields, for the state of an iteration."""

    key: str
    fields: bytes
    ttl_s: int


@dataclass(frozen=True, slots=True)
class DeleteIteration(_OfAnIteration):
    """Delete the state of an iteration."""

    key: str


@dataclass(frozen=True, slots=True)
class DeleteKey(_OneKey):
    """Delete a key of any type."""

    key: str


@dataclass(frozen=True, slots=True)
class DeleteField(_OneKey):
    """Delete a field of a HASH."""

    key: str
    field: str


@dataclass(frozen=True, slots=True)
class Push:
    """Push the job ``payload`` to ``queue``, which is added to the set of all queues."""

    queue: str
    payload: bytes
    repeatable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_queue_name(self.queue)

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
    """Count a member of a batch: it is ``done``, ``failed`` (waits for a retry), ``dead`` or ``out``.

    Fires the callbacks that are due, in the batches around it, too. ``place`` is that of ``result``, JSON,
    among the results; -1 for none. Nothing happens for an unknown batch, or for a member that is done.
    """

    batch: str
    member: str
    state: str
    place: int = -1
    result: bytes = b""


@dataclass(frozen=True, slots=True)
class AddMember(_OfABatch):
    """Add a member that has not run yet to a batch."""

    batch: str
    member: str


@dataclass(frozen=True, slots=True)
class CutChain(_OfABatch):
    """Count out the steps of a chain that have not run."""

    batch: str


@dataclass(frozen=True, slots=True)
class HoldHead(_OneKey):
    """Have an ordered queue wait ``delay_ms`` while the job with this SHA-1 is at its head."""

    key: str
    delay_ms: int
    head: str


@dataclass(frozen=True, slots=True)
class PauseQueue:
    """Pause a queue."""

    queue: str
    repeatable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_queue_name(self.queue)

    def keys(self, keys: Keys) -> list[str]:
        """The full names of the keys, in the order of the script."""
        return [keys.paused]


Effect = (
    Unlock | FreeSlot | CountOut | StoreValue | DeleteKey | DeleteField | Push | CountMember | AddMember
    | CutChain | StoreFields | Announce | PassSlot | HoldHead | PauseQueue | StoreIteration | DeleteIteration
)  # fmt: skip
# By the number in a frame. The names of the classes are those in the script.
_KINDS: dict[int, type[Effect]] = dict(enumerate(get_args(Effect)))
_NUMBERS = {kind: number for number, kind in _KINDS.items()}
_READ: dict[Any, Callable[[bytes], Any]] = {"str": bytes.decode, "int": int, "bytes": bytes}
_FIELDS = {kind: [_READ[field.type] for field in fields(kind)] for kind in _NUMBERS}
# dataclasses.astuple copies each value, which takes 20 times as long.
_GETTERS = {kind: [attrgetter(field.name) for field in fields(kind)] for kind in _NUMBERS}


def name_of(effect: Effect) -> str:
    """The effect's name in the script and in the log."""
    return type(effect).__name__


def subject_of(effect: Effect) -> str:
    """The key, queue or batch that the effect changes, for the log."""
    subject: str = _values(effect)[0]
    return subject


def arguments(effect: Effect) -> tuple[Any, ...]:
    """The arguments of the script: all fields but the key."""
    return _values(effect)[isinstance(effect, _OneKey) :]


def size_of(effects: Iterable[Effect]) -> int:
    """The number of bytes of all fields."""
    return sum(len(_bytes(value)) for effect in effects for value in _values(effect))


_REPLACING = (StoreValue, Announce, StoreIteration)


def merge(before: Sequence[Effect], then: Iterable[Effect]) -> tuple[Effect, ...]:
    """Both together, without those of ``before`` that one of ``then`` replaces: the last value counts."""
    later = tuple(then)
    if not before:
        return later
    replaced = {_target(effect) for effect in later}
    return (*(effect for effect in before if _target(effect) not in replaced), *later)


def _target(effect: Effect) -> object:
    """Equal for two effects of which the second makes the first useless."""
    if isinstance(effect, StoreFields):
        return StoreFields, effect.key, frozenset(simplejson.loads(effect.fields))
    return (type(effect), effect.key) if isinstance(effect, _REPLACING) else effect


def pack(effects: Iterable[Effect]) -> bytes:
    """The effects as bytes: for each its number, then each field with its length."""
    parts: list[bytes] = []
    for effect in effects:
        parts.append(bytes([_NUMBERS[type(effect)]]))
        for value in map(_bytes, _values(effect)):
            parts += (_LENGTH.pack(len(value)), value)
    return b"".join(parts)


def unpack(data: bytes) -> tuple[Effect, ...]:
    """The inverse of ``pack``. Raises ValueError or struct.error for invalid bytes."""
    found: list[Effect] = []
    at = 0
    while at < len(data):
        kind = _KINDS.get(data[at])
        if kind is None:
            raise ValueError(f"unknown effect {data[at]}")
        at += 1
        values: list[Any] = []
        for read in _FIELDS[kind]:
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            if at + length > len(data):
                raise ValueError("an effect is cut off")
            values.append(read(data[at : at + length]))
            at += length
        found.append(kind(*values))
    return tuple(found)


def _values(effect: Effect) -> tuple[Any, ...]:
    """The fields, in their order."""
    return tuple([get(effect) for get in _GETTERS[type(effect)]])


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
