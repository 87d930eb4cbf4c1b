"""Cluster: the questions to the nodes of a Redis Cluster for the primary of one slot. It opens no connection.

All keys of a namespace are in one slot, which its hash tag determines. So there is one primary at a time, as
with sentinels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import redis
from redis.crc import key_slot

from pyworkers.store.transport.errors import NoNodeError, code_of
from pyworkers.store.transport.primary import Address, Directory, NamedPrimary, Question
from pyworkers.store.transport.tls import spell

# For a node without a name, or without one that it knows, instead of its host.
_NO_HOST = (None, b"", b"?")
_LOGIN = "it refuses the login: set username and password in [redis]"


@dataclass(frozen=True)
class Nodes(Directory):
    """Some nodes of a cluster. ``name`` is a key that never exists; its slot is the slot of all keys."""

    places: Sequence[Address]
    name: str

    kind = "+cluster"
    unnamed = NoNodeError
    answers_moved = True
    meanings: ClassVar = {
        "NOAUTH": _LOGIN,
        "WRONGPASS": _LOGIN,
        "NOPERM": "its user may not ask for the slots: pyworkers acl, with the same --config and --url",
        "UNKNOWN": "this is not a node of a cluster: use redis:// or rediss:// in redis.url",
        "TIMEOUT": "no answer in time",
    }

    def login(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """As for the keys: any node may be asked, and may be the primary."""
        return {name: options[name] for name in ("username", "password") if name in options}

    def named(self, asked: Address) -> Question[NamedPrimary | str]:
        """Ask a node for the primary of the slot, and for all other nodes."""
        # Read before the slots, so that it is not of a later failover than they are.
        epochs = yield from _epochs()
        try:
            slots = yield "CLUSTER", "SLOTS"
        except redis.ResponseError as error:
            if "support disabled" not in str(error):
                raise
            return self.meanings["UNKNOWN"]
        nodes = dict.fromkeys(_place(node, asked) for _, _, *found in slots for node in found)
        slot = key_slot(self.name.encode())
        for first, last, primary, *_ in slots:
            if first <= slot <= last:
                return NamedPrimary(epochs.get(primary[2], 0), _place(primary, asked), tuple(nodes))
        return f"no node has the slot {slot}: redis-cli --cluster fix {spell(*asked)}"

    def address(self, asked: Address) -> Question[Address | None]:
        """Ask a node for the primary by a command to it, which costs it next to nothing."""
        try:
            yield "EXISTS", self.name
        except redis.ResponseError as error:
            code = code_of(error)
            if code == "MOVED":
                return moved_to(error, asked)
            if code == "CLUSTERDOWN":
                return None
            if code != "ASK":
                raise
        return asked


def moved_to(error: Any, asked: Address) -> Address:
    """The address in the refusal of a node that was asked; without a host, it is on the same one."""
    return error.host or asked[0], error.port


def _epochs() -> Question[dict[bytes, int]]:
    """By the id of a node, the number of the failover or reshard by which it got its slots."""
    try:
        reply = yield "CLUSTER", "NODES"
    except redis.ResponseError:
        # A managed service may not have it.
        return {}
    rows = [line.split() for line in reply.splitlines()]
    return {row[0]: int(row[6]) for row in rows}


def _place(node: Sequence[Any], asked: Address) -> Address:
    host, port = node[:2]
    return asked[0] if host in _NO_HOST else host.decode(), port
