"""Alarms: who watches, which alarms have begun, and what was sent. Written by ``pyworkers alarms``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import simplejson

from pyworkers.protocol.keys import Keys
from pyworkers.store import full
from pyworkers.store.calls import Mode, Request, Steps, command, decoded, every, one
from pyworkers.store.transport.replies import integer, maybe_blob
from pyworkers.store.values import decoded_json

_KEPT = 100
"""The messages that are kept."""
FIVE_MINUTES_S = 300
_NO_END = -1


def silenced_as(name: str) -> str:
    """The code by which an alarm is silenced (``muting``)."""
    return f"alarm:{name}"


def take_watch(keys: Keys, holder: str, about: Mapping[str, Any], life_s: int) -> Steps[bool]:
    """Watch for this time, unless another process does. Two may watch for a moment after one has paused.

    A key without an end is from another program: no process that watches writes one.
    """
    value = simplejson.dumps({"holder": holder, **about})
    reads = [command("GET", keys.alarming, read=maybe_blob), command("TTL", keys.alarming, read=integer)]
    stored, left_s = yield from every(reads)
    if stored is None:
        return (yield from full.write(keys, "SET", keys.alarming, value, "EX", life_s, "NX", read=bool))
    if left_s != _NO_END and (decoded_json(stored, dict) or {}).get("holder") != holder:
        return False
    return (yield from full.write(keys, "SET", keys.alarming, value, "EX", life_s, read=bool))


def read_begun(keys: Keys) -> Request[dict[str, bytes]]:
    """The alarms that have begun, by name."""
    return one("HGETALL", keys.alarms, read=_by_name)


def write_begun(keys: Keys, name: str, text: str) -> Request[object]:
    """Store an alarm that has begun."""
    return full.write(keys, "HSET", keys.alarms, name, text, read=integer)


def forget_begun(keys: Keys, name: str) -> Request[object]:
    """Forget an alarm that has ended, once all targets have the message."""
    return one("HDEL", keys.alarms, name, read=integer)


def note_sent(keys: Keys, text: str) -> Request[object]:
    """Note a message that was sent, or given up."""
    key = keys.alarms_sent
    return full.writes(keys, ("LPUSH", key, text), ("LTRIM", key, 0, _KEPT - 1), read=list)


def count_died(keys: Keys, now: float) -> Request[int]:
    """The jobs that are dead since five minutes."""
    return one("ZCOUNT", keys.dead, now - FIVE_MINUTES_S, "+inf", read=integer)


def read_all(keys: Keys) -> Request[tuple[dict[str, Any], dict[str, bytes], list[dict[str, Any]]]]:
    """Who watches with which alarms, those that have begun, and the last messages."""
    commands = [
        command("GET", keys.alarming, read=maybe_blob),
        command("HGETALL", keys.alarms, read=_by_name),
        command("LRANGE", keys.alarms_sent, 0, _KEPT - 1),
    ]
    return Request(commands, _all, Mode.LENIENT)


def _all(replies: list[Any]) -> tuple[dict[str, Any], dict[str, bytes], list[dict[str, Any]]]:
    watcher, begun, sent = replies
    messages = [decoded_json(raw, dict) or {} for raw in sent or ()]
    return decoded_json(watcher, dict) or {}, begun or {}, messages


def _by_name(reply: dict[bytes, bytes]) -> dict[str, bytes]:
    return {decoded(name): text for name, text in reply.items()}
