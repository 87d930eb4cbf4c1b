"""Sessions: the signed cookie of a user who has logged in.

Pure. The signature covers the line of the user: one who is removed from the file, or has another role or
password, is out at the next request. Its key needs that line and the secret in Redis, so neither of them
alone forges a session.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

from pyworkers.web.security.users import User

LASTS_S = 12 * 3600
"""Seconds after which a user logs in again."""
_SHAPE = re.compile(r"([\w-]{1,700})\.([0-9]{1,12})\.([\w-]{22})\.([\w-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a cookie claims; its signature is not checked yet."""

    name: str
    expires: int
    nonce: str
    signed: str
    signature: str

    @classmethod
    def parse(cls, text: str) -> Ticket | None:
        """Read a cookie; None for other text."""
        found = _SHAPE.fullmatch(text)
        if found is None:
            return None
        try:
            name = urlsafe_b64decode(f"{found[1]}==").decode()
        except ValueError:
            return None
        return cls(name, int(found[2]), found[3], text.rpartition(".")[0], found[4])

    @property
    def session(self) -> str:
        """The name of the session in Redis, which tells nothing about the cookie."""
        return hashlib.sha256(self.nonce.encode()).hexdigest()[:32]


def open_session(user: User, secret: bytes, now: float) -> str:
    """The cookie of a new session."""
    name = urlsafe_b64encode(user.name.encode()).decode().rstrip("=")
    signed = f"{name}.{int(now) + LASTS_S}.{secrets.token_urlsafe(16)}"
    return f"{signed}.{_signature(signed, user, secret)}"


def is_valid(ticket: Ticket, user: User, secret: bytes, now: float) -> bool:
    """True for a session of this user that has not expired."""
    is_genuine = hmac.compare_digest(ticket.signature, _signature(ticket.signed, user, secret))
    return is_genuine and now < ticket.expires


def _signature(signed: str, user: User, secret: bytes) -> str:
    key = hmac.digest(secret, f"session\0{user}".encode(), "sha256")
    return urlsafe_b64encode(hmac.digest(key, signed.encode(), "sha256")).decode().rstrip("=")
