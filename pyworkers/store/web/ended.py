"""Ended: the sessions of the dashboard that a logout has ended before they expired.

Used by ``api``; never by the server.
"""

from __future__ import annotations

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Request, one
from pyworkers.store.transport.replies import done, nonzero


def end(keys: Keys, session: str, remaining_s: int) -> Request[object]:
    """Note the end of a session; its cookie expires by itself in ``remaining_s``."""
    return one("SET", keys.web_ended(session), "", "EX", max(remaining_s, 1), read=done)


def has_ended(keys: Keys, session: str) -> Request[bool]:
    """True if the end of this session was noted."""
    return one("EXISTS", keys.web_ended(session), read=nonzero)
