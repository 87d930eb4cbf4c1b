"""The Redis configuration of the server that this process belongs to, for the clients inside its jobs.

Set in the fork server, from the master's message, and inherited by the workers; never in an environment
variable, which every program that a job starts can read.
"""

from __future__ import annotations

from collections.abc import Mapping

_fields: Mapping[str, str] | None = None


def hand_over(fields: Mapping[str, str] | None) -> None:
    """Set the default Redis of the clients in this process: the fields of ``[redis]``, or None for none."""
    global _fields
    _fields = fields or None


def of_this_process() -> Mapping[str, str] | None:
    """The fields of ``[redis]``; None in a process that belongs to no server."""
    return _fields
