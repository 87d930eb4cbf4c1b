"""Webshared: the secret for signatures and the ended sessions, which all processes of a dashboard share."""

from __future__ import annotations

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps
from pyworkers.store.sessions import end, has_ended, shared_secret


def read_web_secret(keys: Keys, offered: bytes) -> Steps[bytes]:
    """The random bytes with which a dashboard signs; ``offered`` becomes them if there are none."""
    return (yield from shared_secret(keys, offered))


def end_session(keys: Keys, session: str, remaining_s: int) -> Steps[None]:
    """End a session, which expires by itself in ``remaining_s``."""
    yield from end(keys, session, remaining_s)


def read_session_ended(keys: Keys, session: str) -> Steps[bool]:
    """True if any process has ended the session."""
    return (yield from has_ended(keys, session))
