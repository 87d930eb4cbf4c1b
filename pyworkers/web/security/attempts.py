"""Attempts: how many failed logins an address and a name have had of late.

Pure, and bounded: the caller passes the time, and only the latest keys are kept.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

_MOST_KEYS = 10_000
# Address, kind and name; an empty text for all of them.
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Allowance:
    """This many failures at once, and one more each ``period_s``."""

    burst: int
    period_s: float


# A person who has forgotten a password tries a few; ten a minute is nothing to a program that guesses.
OF_NAME_AT_ADDRESS = Allowance(10, 6.0)
# Many names that one address guesses. An office shares an address: one of its people must not shut out all.
OF_ADDRESS = Allowance(100, 1.0)
# Many addresses that guess one password. Wide enough that a stranger cannot lock a user out with ease.
OF_NAME = Allowance(50, 2.0)


class Attempts:
    """The failures by key; each one is forgotten after a time."""

    def __init__(self) -> None:
        # The time at which all failures of a key are forgotten, the latest key last.
        self._ends: OrderedDict[_Key, float] = OrderedDict()

    def begin(self, address: str, name: str, now: float) -> int:
        """Count an attempt as failed; or the seconds to wait, if there were too many."""
        allowances = _allowances(address, name)
        wait_s = max(self._wait_s(key, allowance, now) for key, allowance in allowances)
        if wait_s <= 0:
            self._add(allowances, now)
        return max(ceil(wait_s), 0)

    def succeed(self, address: str, name: str) -> None:
        """Take back what ``begin`` has counted."""
        for key, allowance in _allowances(address, name):
            if key in self._ends:
                self._ends[key] -= allowance.period_s

    def _wait_s(self, key: _Key, allowance: Allowance, now: float) -> float:
        room = (allowance.burst - 1) * allowance.period_s
        return self._ends.get(key, now) - now - room

    def _add(self, allowances: Sequence[tuple[_Key, Allowance]], now: float) -> None:
        for key, allowance in allowances:
            self._ends[key] = max(self._ends.pop(key, now), now) + allowance.period_s
        while len(self._ends) > _MOST_KEYS:
            self._ends.popitem(last=False)


def _allowances(address: str, name: str) -> list[tuple[_Key, Allowance]]:
    network = _network(address)
    # A password without a name has its own place.
    found = [((network, "name", name), OF_NAME_AT_ADDRESS), ((network, "", ""), OF_ADDRESS)]
    return [*found, (("", "name", name), OF_NAME)] if name else found


def _network(address: str) -> str:
    """The address; of IPv6 the network, because one client has all addresses in it."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else str(found)
