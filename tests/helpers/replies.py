"""Replies of redis-py with exact types: it declares bytes as ``bytes | str``, for clients that decode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def as_bytes(reply: object) -> bytes:
    """A value or a member."""
    assert isinstance(reply, bytes), reply
    return reply


def as_list(reply: Iterable[object]) -> list[bytes]:
    """Members, or the names of keys."""
    return [as_bytes(member) for member in reply]


def as_scores(reply: Iterable[object]) -> list[tuple[bytes, float]]:
    """The members of a sorted set, each with its score."""
    found: list[tuple[bytes, float]] = []
    for pair in reply:
        assert isinstance(pair, tuple), pair
        found.append((as_bytes(pair[0]), float(pair[1])))
    return found


def as_texts(reply: Mapping[object, object] | Mapping[bytes | str, bytes | str]) -> dict[str, str]:
    """The fields of a hash."""
    return {as_bytes(name).decode(): as_bytes(value).decode() for name, value in reply.items()}
