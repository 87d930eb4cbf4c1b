"""Redirects: sends again what a server has refused that is not the primary, or not yet, or no longer.

Used by every kind of connection to a primary that sentinels or the nodes of a cluster name. Such a refusal
means that nothing has run, so the command may be sent again; all other errors are left to the caller.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import hiredis
from redis.exceptions import ResponseError

from pyworkers.store.transport.errors import code_of

if TYPE_CHECKING:
    from pyworkers.store.transport.primary import Primary

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command

# The last one is of a command that waited at a primary which has become a replica.
CODES = frozenset({"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "UNBLOCKED"})
# A replica is elected within about two times the cluster-node-timeout; a reshard may take longer.
_PATIENCE_S = 5.0
# Short ones first, because a small slot moves within milliseconds.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _GROWTH = 0.005, 0.25, 1.7


class Redirects:
    """The refusals of one call, which is sent again for some seconds."""

    def __init__(self, primary: Primary | None) -> None:
        """``primary`` is None for the connections to a fixed address."""
        self._primary = primary
        self._until = time.monotonic() + _PATIENCE_S
        self._pause_s = 0.0

    def pause_s(self, error: ResponseError) -> float:
        """The seconds until the call is sent again. Raises ``error`` if that would not help."""
        if self._primary is None or (code := code_of(error)) not in CODES or time.monotonic() > self._until:
            raise error
        if code == "MOVED":
            self._primary.moved(error)
            if not self._pause_s:
                self._pause_s = _FIRST_PAUSE_S
                return 0.0
        self._pause_s = min(max(self._pause_s * _GROWTH, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        # Random: all clients of the slot wait.
        return self._pause_s * random.uniform(0.5, 1.0)


class RedirectedCommands(NamedTuple):
    """The commands of an exchange that were refused, packed, and their places among its replies."""

    packed: bytes
    places: Sequence[int]
    error: ResponseError

    def put(self, answers: Sequence[Any], replies: list[Any]) -> None:
        """Put the answers to these commands in the place of the refusals."""
        for place, answer in zip(self.places, answers, strict=True):
            replies[place] = answer


def refused(packed: bytes, replies: Sequence[Any], places: Sequence[int] = ()) -> RedirectedCommands | None:
    """What to send again of packed commands: a transaction as a whole. None if the others have been run.

    ``places`` are those of the commands in the exchange of which they are a part.
    """
    found = [place for place, reply in enumerate(replies) if is_redirect(reply)]
    if not found:
        return None
    error = replies[found[0]]
    commands = _commands(packed, len(replies))
    if commands[0] == [b"MULTI"]:
        found = list(range(len(replies)))
    again = b"".join(_pack(tuple(commands[place])) for place in found)
    return RedirectedCommands(again, [places[place] if places else place for place in found], error)


def is_redirect(reply: Any) -> bool:
    """True for a refusal after which a command may be sent again."""
    return isinstance(reply, ResponseError) and code_of(reply) in CODES


def _commands(packed: bytes, number: int) -> list[list[bytes]]:
    reader = hiredis.Reader()
    reader.feed(packed)
    return [reader.gets() for _ in range(number)]
