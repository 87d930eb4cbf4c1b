"""Sessions: the random bytes with which all processes of a dashboard sign, and the sessions that have ended.

Used by ``api``; never by the server.
"""

from __future__ import annotations

from typing import Any

from pyworkers.errors import StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Request, command, one
from pyworkers.store.transport.replies import done, nonzero

SECRET_TTL_S = 30 * 86400
"""After this many seconds a new secret is made: forms and sessions that the old one has signed end."""
_LEAST_BYTES = 16


def shared_secret(keys: Keys, offered: bytes) -> Request[bytes]:
    """The secret; ``offered`` becomes it if there is none. Raises StoreError if other data are there."""

    def read(replies: list[Any]) -> bytes:
        secret = replies[1]
        if not isinstance(secret, bytes) or len(secret) < _LEAST_BYTES:
            raise StoreError(f"{keys.web_secret} holds no secret of the dashboard")
        return secret

    making = command("SET", keys.web_secret, offered, "NX", "EX", SECRET_TTL_S)
    return Request([making, command("GET", keys.web_secret)], read)


def end(keys: Keys, session: str, remaining_s: int) -> Request[object]:
    """Note the end of a session; its cookie expires by itself in ``remaining_s``."""
    return one("SET", keys.web_ended(session), "", "EX", max(remaining_s, 1), read=done)


def has_ended(keys: Keys, session: str) -> Request[bool]:
    """True if the end of this session was noted."""
    return one("EXISTS", keys.web_ended(session), read=nonzero)
