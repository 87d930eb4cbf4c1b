"""Muting: causes of problems that a person has taken off the overview of the dashboard for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyworkers.protocol.keys import Keys
from pyworkers.store import full
from pyworkers.store.calls import Mode, Request, command, one
from pyworkers.store.transport.replies import maybe_blob, nonzero
from pyworkers.store.values import as_count

FOR_S = 3600


def mute(keys: Keys, code: str, number: int) -> Request[object]:
    """Mute a cause with this many problems for an hour."""
    return full.write(keys, "SET", keys.web_muted(code), number, "EX", FOR_S, read=bool)


def unmute(keys: Keys, code: str) -> Request[bool]:
    """Show a cause again; False if it was not muted."""
    return one("DEL", keys.web_muted(code), read=nonzero)


def read_muted(keys: Keys, codes: Sequence[str]) -> Request[dict[str, int]]:
    """Of these causes those that are muted, each with the number of problems that it had then."""

    def read(replies: list[Any]) -> dict[str, int]:
        return {code: as_count(text) for code, text in zip(codes, replies, strict=True) if text is not None}

    return Request(
        [command("GET", keys.web_muted(code), read=maybe_blob) for code in codes], read, Mode.LENIENT
    )
