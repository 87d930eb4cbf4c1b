"""Tasks: what Redis holds of an action on many jobs: a hash that expires, and a sign of life of its process.

Used by ``api``; never by the server. Several dashboards may show, confirm and stop the same task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyworkers.protocol.keys import Keys
from pyworkers.store import full
from pyworkers.store.calls import Mode, Request, Steps, command, every

TTL_S = 86_400
"""How long a task is kept after its last change."""
ALIVE_S = 15
"""How long after its last report the process of a task counts as running."""


def read(keys: Keys, task: str) -> Steps[tuple[dict[bytes, bytes], bool]]:
    """The fields of a task, none for an unknown one; True while its process runs."""
    stored, alive = yield from every(
        [command("HGETALL", keys.task(task)), command("EXISTS", keys.task_alive(task))], Mode.LENIENT
    )
    return stored or {}, bool(alive)


def report(keys: Keys, task: str, fields: Mapping[str, Any]) -> Request[bool]:
    """Write fields, with a sign of life. Returns True if a person wants the task to stop."""
    flat = [part for pair in fields.items() for part in pair]
    key = keys.task(task)
    return full.writes(
        keys,
        ("HSET", key, *flat),
        ("EXPIRE", key, TTL_S),
        ("SET", keys.task_alive(task), 1, "EX", ALIVE_S),
        ("HGET", key, "stop"),
        read=lambda replies: replies[3] is not None,
    )


def claim(keys: Keys, task: str) -> Request[bool]:
    """Take the right to run a task; False if another person confirmed it first."""
    return full.write(keys, "HSETNX", keys.task(task), "confirmed", 1, read=bool)


def stop(keys: Keys, task: str) -> Request[object]:
    """Note that the task stops after the jobs that it works on."""
    key = keys.task(task)
    return full.writes(keys, ("HSET", key, "stop", 1), ("EXPIRE", key, TTL_S), read=list)
