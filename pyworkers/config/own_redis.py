"""The Redis of the server that this process belongs to, as the clients inside its jobs find it.

Set in the fork server, from what the master says over its socket, and inherited by the workers; never in a
variable of the environment, which every program that a job starts can read.
"""

from __future__ import annotations

from collections.abc import Mapping

_fields: Mapping[str, str] | None = None


def hand_over(fields: Mapping[str, str] | None) -> None:
    """Let clients of this process use this Redis by default: the fields of ``[redis]``, or None for none."""
    global _fields
    _fields = fields or None


def of_this_process() -> Mapping[str, str] | None:
    """The fields of ``[redis]``; None in a process that belongs to no server."""
    return _fields
