"""Sentinel: the questions to sentinels for the primary of a name. It opens no connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import redis

from pyworkers.store.transport.errors import NoPrimaryError
from pyworkers.store.transport.primary import Address, Directory, NamedPrimary, Question
from pyworkers.store.transport.tls import spell

# The first one comes a tick of the sentinel before it sends REPLICAOF NO ONE, the second one when the replica
# says that it is a primary, which is asked once a second.
_PROMOTES, _PROMOTED = "+failover-state-send-slaveof-noone", "+promoted-slave"
_STATE, _ALL, _ADDRESS = "SENTINEL MASTER", "SENTINEL MASTERS", "SENTINEL GET-MASTER-ADDR-BY-NAME"
# Of a sentinel that watches no primary of this name.
_UNKNOWN = "No such master"
_LOGIN = "it refuses the login: set sentinel_username and sentinel_password in the query of redis.url"


@dataclass(frozen=True)
class Sentinels(Directory):
    """The sentinels of one primary; ``credentials`` are of the login to them."""

    places: Sequence[Address]
    name: str
    credentials: Mapping[str, str]

    kind = "+sentinel"
    unnamed = NoPrimaryError
    channels = (_PROMOTES, _PROMOTED)
    meanings: ClassVar = {
        "NOAUTH": _LOGIN,
        "WRONGPASS": _LOGIN,
        "NOPERM": "its user may not ask for the primary: grant +sentinel there",
        "UNKNOWN": "this is not a sentinel: name sentinels in redis.url, or use redis:// and rediss://",
        "TIMEOUT": "no answer in time",
    }

    def login(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Their own: Redis' is not valid there."""
        return self.credentials

    def named(self, asked: Address) -> Question[NamedPrimary | str]:
        """Ask a sentinel for the living primary."""
        try:
            state = yield _STATE, self.name
        except redis.ResponseError as error:
            if _UNKNOWN not in str(error):
                raise
            return _unknown(self.name, (yield (_ALL,)))
        return _named(state, (yield from self.address(asked)))

    def address(self, asked: Address) -> Question[Address | None]:
        """Ask a sentinel for the address alone."""
        reply = yield _ADDRESS, self.name
        if not reply:
            return None
        host, port = reply
        return host.decode() if isinstance(host, bytes) else host, int(port)

    def replaced(self, channel: str, text: str) -> Address | None:
        """The primary in ``slave NAME HOST PORT @ PRIMARY HOST PORT``."""
        match text.split():
            case [_, _, _, _, "@", self.name, host, port] if channel == _PROMOTES and port.isdecimal():
                return host, int(port)
        return None


def _named(state: Mapping[str, Any], address: Address | None) -> NamedPrimary | str:
    """``state`` was read before ``address``.

    The two differ while this sentinel leads a failover: its state is of the former primary until all other
    replicas follow the new one, which may take seconds.
    """
    is_down = state["is_sdown"] or state["is_odown"]
    if address is None or (is_down and address == (state["ip"], state["port"])):
        return f"the primary {spell(state['ip'], state['port'])} is down, and no replica has its place yet"
    return NamedPrimary(state["config-epoch"], address)


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    others = " and ".join(map(repr, sorted(known)))
    found = f"only {others}: correct the name in redis.url" if others else "nor any other one"
    return f"no primary has the name {name!r}, {found}"
