"""Redirects: sends again what a server has refused that is not the primary, or not yet, or no longer.

Used by every kind of connection to a primary that sentinels or the nodes of a cluster name. Such a refusal
means that nothing has run, so the command may be sent again; all other errors are left to the caller.

While a slot moves, its node refuses a command with ASK if it has none of the keys. The node that imports the
slot then runs the command after ASKING, if it has all of the keys, or if there is one alone: no other node
can have that one, and none creates it. So each command is safe there, and so is a script, because one that
writes several keys declares a key that never exists (``undivided``).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import hiredis
from redis.exceptions import ResponseError

from pyworkers.store.transport.errors import code_of, leads_elsewhere

if TYPE_CHECKING:
    from pyworkers.store.transport.primary import Address, Primary

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command

# The last one is of a command that waited at a primary which has become a replica.
CODES = frozenset({"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "UNBLOCKED"})
# A replica is elected within about two times the cluster-node-timeout.
_PATIENCE_S = 5.0
# A slot with many keys, or with a large one, moves for longer. As long as a call waits for a reply.
_MOVING = frozenset({"ASK", "TRYAGAIN"})
_MOVING_PATIENCE_S = 10.0
# Short ones first, because a small slot moves within milliseconds.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _GROWTH = 0.005, 0.25, 1.7


class Redirects:
    """The refusals of one call, which is sent again for some seconds."""

    def __init__(self, primary: Primary | None) -> None:
        """``primary`` is None for the connections to a fixed address."""
        self._primary = primary
        self._began = time.monotonic()
        self._pause_s = 0.0

    def pause_s(self, error: ResponseError) -> float:
        """The seconds until the call is sent again. Raises ``error`` if that would not help."""
        code = code_of(error)
        patience_s = _MOVING_PATIENCE_S if code in _MOVING else _PATIENCE_S
        if self._primary is None or code not in CODES or time.monotonic() - self._began > patience_s:
            raise error
        if code == "MOVED":
            self._primary.moved(error)
            if not self._pause_s:
                self._pause_s = _FIRST_PAUSE_S
                return 0.0
        self._pause_s = min(max(self._pause_s * _GROWTH, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        # Random: all clients of the slot wait.
        return self._pause_s * random.uniform(0.5, 1.0)

    def node_in(self, refusal: Any) -> Address | None:
        """The node that imports the slot, if a refusal names it."""
        if self._primary is None or code_of(refusal) != "ASK":
            return None
        return self._primary.node_in(refusal)


class Repeat(NamedTuple):
    """Packed commands that are sent again after a pause, and the number of their replies."""

    packed: bytes
    number: int
    pause_s: float = 0.0
    node: Address | None = None
    """The node that imports the slot; None: the primary."""
    leaves: bool = False
    """True if the connections lead to a server that is not the primary."""


Resending = Generator[Repeat, list[Any], None]


def resending(primary: Primary, packed: bytes, replies: list[Any]) -> Resending:
    """Send again what was refused of packed commands, and put the answers in the place of the refusals.

    Raises the refusal if it stays.
    """
    commands, redirects = _commands(packed, len(replies)), Redirects(primary)
    if commands[0] != [b"MULTI"]:
        yield from _resent(commands, refused(replies, range(len(replies))), redirects, replies)
    elif _is_divisible(commands, replies):
        # SADD first, which changes nothing without the job.
        for place in range(1, len(commands) - 1):
            if not isinstance(replies[place], ResponseError):
                [replies[place]] = yield Repeat(_pack(tuple(commands[place])), 1)
            yield from _resent(commands, refused(replies, [place]), redirects, replies)
            if isinstance(replies[place], ResponseError):
                return
        replies[0], replies[-1] = b"OK", replies[1:-1]
    else:
        yield from _as_a_whole(packed, redirects, replies)


def refusal_in(replies: Sequence[Any]) -> ResponseError | None:
    """The first refusal after which a command may be sent again."""
    return next((reply for reply in replies if _is_redirect(reply)), None)


def refused(replies: Sequence[Any], places: Sequence[int]) -> list[int]:
    """The places of the commands that may be sent again."""
    return [place for place in places if _is_redirect(replies[place])]


def put(found: Sequence[Any], places: Sequence[int], replies: list[Any]) -> None:
    """Put the replies to the commands of these places among the others."""
    for place, reply in zip(places, found, strict=True):
        replies[place] = reply


def answers(found: Sequence[Any]) -> list[Any]:
    """The replies to commands that were sent after ASKING each; in their place its refusal."""
    return [
        asking if isinstance(asking, Exception) else reply
        for asking, reply in zip(*[iter(found)] * 2, strict=True)
    ]


def _resent(
    commands: Sequence[list[bytes]], places: list[int], redirects: Redirects, replies: list[Any]
) -> Resending:
    """Send the commands at these places until none is refused."""
    while places:
        if (node := redirects.node_in(replies[places[0]])) is not None:
            asked = [place for place in places if redirects.node_in(replies[place]) == node]
            packed = b"".join(_pack(("ASKING",)) + _pack(tuple(commands[place])) for place in asked)
            found = yield Repeat(packed, 2 * len(asked), node=node)
            put(answers(found), asked, replies)
            places = refused(replies, places)
        if places:
            refusal = replies[places[0]]
            packed = b"".join(_pack(tuple(commands[place])) for place in places)
            found = yield Repeat(
                packed, len(places), redirects.pause_s(refusal), leaves=leads_elsewhere(refusal)
            )
            put(found, places, replies)
            places = refused(replies, places)


def _as_a_whole(packed: bytes, redirects: Redirects, replies: list[Any]) -> Resending:
    while (refusal := refusal_in(replies)) is not None:
        pause_s = redirects.pause_s(refusal)
        replies[:] = yield Repeat(packed, len(replies), pause_s, leaves=leads_elsewhere(refusal))


def _is_divisible(commands: Sequence[list[bytes]], replies: Sequence[Any]) -> bool:
    """True for the push of jobs into one queue while its slot moves.

    Its keys may be on two nodes then, and an empty queue on none: the transaction would wait for the end.
    """
    refusal = refusal_in(replies)
    names = [command[0] for command in commands[1:-1]]
    return refusal is not None and code_of(refusal) in _MOVING and names == [b"SADD", b"LPUSH"]


def _is_redirect(reply: Any) -> bool:
    return isinstance(reply, ResponseError) and code_of(reply) in CODES


def _commands(packed: bytes, number: int) -> list[list[bytes]]:
    reader = hiredis.Reader()
    reader.feed(packed)
    return [reader.gets() for _ in range(number)]
