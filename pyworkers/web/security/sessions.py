"""Sessions: the signed cookie of a person who has logged in.

Pure. The signature covers the line of a user of the file: one who is removed from it, or has another role or
password, is out at the next request. For a person of a provider it covers the rights, and the settings of
the provider with the secret of its client. The key needs these and the secret in Redis, so neither of them
alone forges a session.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

LASTS_S = 12 * 3600
"""Seconds after which a user logs in again."""
_SHAPE = re.compile(
    r"([\w-]{1,700})(?:\.([\w-]{1,3000}))?\.([0-9]{1,12})\.([\w-]{22})\.([\w-]{43})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a cookie claims; its signature is not checked yet."""

    name: str
    expires: int
    nonce: str
    signed: str
    signature: str
    rights: str = ""
    """The rights at the login, as text; empty for a user of the file, which has them."""

    @classmethod
    def parse(cls, text: str) -> Ticket | None:
        """Read a cookie; None for other text."""
        found = _SHAPE.fullmatch(text)
        if found is None:
            return None
        try:
            name, rights = (urlsafe_b64decode(f"{part or ''}==").decode() for part in found.group(1, 2))
        except ValueError:
            return None
        return cls(name, int(found[3]), found[4], text.rpartition(".")[0], found[5], rights)

    @property
    def session(self) -> str:
        """The name of the session in Redis, which tells nothing about the cookie."""
        return hashlib.sha256(self.nonce.encode()).hexdigest()[:32]


def open_session(name: str, key: object, secret: bytes, now: float, rights: str = "") -> str:
    """The cookie of a new session. ``key``: what else the signature depends on, as text."""
    parts = [encoded(part) for part in (name, rights) if part]
    signed = ".".join([*parts, str(int(now) + LASTS_S), secrets.token_urlsafe(16)])
    return f"{signed}.{_signature(signed, key, secret)}"


def is_valid(ticket: Ticket, key: object, secret: bytes, now: float) -> bool:
    """True for a session with this key that has not expired."""
    is_genuine = hmac.compare_digest(ticket.signature, _signature(ticket.signed, key, secret))
    return is_genuine and now < ticket.expires


def encoded(text: str) -> str:
    """A text as a part of a cookie."""
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _signature(signed: str, key: object, secret: bytes) -> str:
    mixed = hmac.digest(secret, f"session\0{key}".encode(), "sha256")
    return urlsafe_b64encode(hmac.digest(mixed, signed.encode(), "sha256")).decode().rstrip("=")
