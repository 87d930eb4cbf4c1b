"""Lists: the effects of one outcome, or of a note: their names, size, merge and bytes.

Pure; used by the worker, the master and the api.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, get_args

import simplejson

from pyworkers.protocol.effects.kinds import (
    Announce,
    AppendLog,
    Effect,
    OneKey,
    StoreFields,
    StoreIteration,
    StoreValue,
)

MAX_BYTES = 16 * 1024 * 1024
"""The limit for all effects of one outcome: they are held in the server's memory, and run in one script."""
_LENGTH = struct.Struct("!I")
_LONGEST_NAME = 4096

# By the number in a frame. The names of the classes are those in the script.
_KINDS: dict[int, type[Effect]] = {kind.NUMBER: kind for kind in get_args(Effect)}
_READ: dict[Any, Callable[[bytes], Any]] = {"str": bytes.decode, "int": int, "bytes": bytes}
_FIELDS = {kind: [_READ[field.type] for field in fields(kind)] for kind in _KINDS.values()}
# dataclasses.astuple copies each value, which takes 20 times as long.
_GETTERS = {kind: [attrgetter(field.name) for field in fields(kind)] for kind in _KINDS.values()}


def name_of(effect: Effect) -> str:
    """The effect's name in the script and in the log."""
    return type(effect).__name__


def subject_of(effect: Effect) -> str:
    """The key, queue or batch that the effect changes, for the log."""
    subject: str = _values(effect)[0]
    return subject


def arguments(effect: Effect) -> tuple[Any, ...]:
    """The arguments of the script: all fields but the key."""
    return _values(effect)[isinstance(effect, OneKey) :]


def size_of(effects: Iterable[Effect]) -> int:
    """The number of bytes of all fields."""
    return sum(len(_bytes(value)) for effect in effects for value in _values(effect))


def can_be_sent(effect: Effect) -> bool:
    """False if a field of it has a lone surrogate, or is no name because of its length.

    Texts are names of keys, members and queues; what may be large is bytes.
    """
    try:
        values = [(value, len(_bytes(value))) for value in _values(effect)]
    except ValueError:
        return False
    return all(isinstance(value, bytes) or size <= _LONGEST_NAME for value, size in values)


_REPLACING = (StoreValue, Announce, StoreIteration)


def merge(before: Sequence[Effect], then: Iterable[Effect]) -> tuple[Effect, ...]:
    """Both together, without the effects of ``before`` that one of ``then`` replaces: the last value counts.

    Lines of one log become one effect.
    """
    later = tuple(then)
    if not before:
        return later
    logs = {_target(effect): effect for effect in before if isinstance(effect, AppendLog)}
    if logs:
        later = tuple(_with_earlier(logs, effect) for effect in later)
    replaced = {_target(effect) for effect in later}
    return (*(effect for effect in before if _target(effect) not in replaced), *later)


def _with_earlier(logs: Mapping[object, AppendLog], effect: Effect) -> Effect:
    if not isinstance(effect, AppendLog):
        return effect
    earlier = logs.get(_target(effect))
    return effect if earlier is None else effect.after(earlier)


def _target(effect: Effect) -> object:
    """Equal for two effects of which the second makes the first useless."""
    if isinstance(effect, StoreFields):
        return StoreFields, effect.key, _names(effect.fields)
    if isinstance(effect, AppendLog):
        return AppendLog, effect.key, effect.run
    return (type(effect), effect.key) if isinstance(effect, _REPLACING) else effect


def _names(fields: bytes) -> object:
    """The names of the fields of a StoreFields; of bytes that are not a JSON object, the bytes."""
    try:
        return frozenset(simplejson.loads(fields))
    except (ValueError, TypeError, RecursionError):
        return fields


def pack(effects: Iterable[Effect]) -> bytes:
    """The effects as bytes: for each its number, then each field with its length."""
    parts: list[bytes] = []
    for effect in effects:
        parts.append(bytes([effect.NUMBER]))
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
