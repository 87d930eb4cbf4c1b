"""Passwords: the hash that the file of users holds, and the comparison with a password.

Pure, and slow on purpose: the dashboard hashes in a thread. A password is never stored or logged.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import unicodedata
from base64 import b64decode, b64encode
from dataclasses import dataclass

from pyworkers.web.names import number_in

# 16 MiB and five passes: what OWASP recommends for scrypt where memory is short. About 0.2 s.
_N, _R, _P = 1 << 14, 8, 5
_SALT_BYTES = 16
_DIGEST_BYTES = 32
# A file with other numbers must not take the memory or the processor of the dashboard.
_MOST_BYTES = 64 << 20
_MOST_PASSES = 16
_RULE = "is not a hash: use the line that `pyworkers web-user` prints"


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """The scrypt hash of a password; as text ``scrypt$n$r$p$salt$hash``, the last two in base64."""

    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    @classmethod
    def of(cls, password: str, *, n: int = _N, r: int = _R, p: int = _P) -> PasswordHash:
        """The hash of a password, with a new salt."""
        salt = secrets.token_bytes(_SALT_BYTES)
        return cls(n, r, p, salt, _scrypt(password, salt, n, r, p))

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """Read the text. Raises ValueError, which never quotes it."""
        try:
            name, n, r, p, salt, digest = text.split("$")
            found = cls(_number(n), _number(r), _number(p), _bytes(salt), _bytes(digest))
        except ValueError as error:
            raise ValueError(_RULE) from error
        if name != "scrypt" or len(found.digest) != _DIGEST_BYTES or not found._is_bearable():
            raise ValueError(_RULE)
        return found

    def __str__(self) -> str:
        salt, digest = (b64encode(part).decode() for part in (self.salt, self.digest))
        return f"scrypt${self.n}${self.r}${self.p}${salt}${digest}"

    def __repr__(self) -> str:
        return "PasswordHash(***)"

    def matches(self, password: str) -> bool:
        """True for the password; takes the same time for each other one."""
        return hmac.compare_digest(_scrypt(password, self.salt, self.n, self.r, self.p), self.digest)

    def _is_bearable(self) -> bool:
        power = self.n > 1 and self.n & (self.n - 1) == 0
        return power and self.r >= 1 and 128 * self.n * self.r <= _MOST_BYTES and 1 <= self.p <= _MOST_PASSES


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    # Keyboards differ in how they compose accents.
    text = unicodedata.normalize("NFC", password).encode(errors="surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=2 * _MOST_BYTES, dklen=_DIGEST_BYTES)


def _number(text: str) -> int:
    found = number_in(text, 9)
    if found is None:
        raise ValueError("not a number")
    return found


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)
