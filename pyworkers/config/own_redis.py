"""The Redis configuration of the server that this process belongs to, for the clients inside its jobs.

Set in the fork server, from the master's message, and inherited by the workers; never in an environment
variable, which every program that a job starts can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyworkers.config.stores import DEFAULT


class OwnRedis(NamedTuple):
    """The fields of ``[redis]``, of each ``[redis.NAME]``, and the names of the Redis of queues elsewhere."""

    redis: Mapping[str, str]
    others: Mapping[str, Mapping[str, str]]
    elsewhere: Mapping[str, str]

    def name_of(self, queue: str) -> str:
        """The name of the Redis that has a queue."""
        return self.elsewhere.get(queue, DEFAULT)


_own: OwnRedis | None = None


def hand_over(
    redis: Mapping[str, str] | None,
    others: Mapping[str, Mapping[str, str]] | None = None,
    elsewhere: Mapping[str, str] | None = None,
) -> None:
    """Set the Redis servers of the clients in this process; None for none."""
    global _own
    _own = OwnRedis(redis, others or {}, elsewhere or {}) if redis else None


def of_this_process() -> OwnRedis | None:
    """The Redis servers; None in a process that belongs to no server."""
    return _own
