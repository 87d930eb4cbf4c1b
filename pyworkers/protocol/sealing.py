"""Sealing: the encrypted arguments of a job, as they are in its envelope.

Pure; used by producers and workers. AES-GCM by the package ``cryptography`` (extra ``crypto``), which is
imported when the first keys are made. The text is base64 of: a byte for the version, eight bytes that name
the key, a random nonce of 12 bytes, then the ciphertext with its tag. Version, key, the job's id and its
class are authenticated with it, so the text of one job opens in no other. Nothing else is, because it may
change: a job is retried, moved and edited by other programs. No error quotes arguments or a key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import Any, Protocol

from pyworkers.errors import EncryptionKeyError, MissingExtraError
from pyworkers.protocol import envelope

FIELD = "encrypted"
"""The field of the envelope: True if ``args`` hold nothing but the sealed arguments."""
KEY_BYTES = 32
_VERSION = b"\x01"
_NAME_BYTES = 8
_NONCE_BYTES = 12
_HEAD_BYTES = len(_VERSION) + _NAME_BYTES + _NONCE_BYTES
_TAG_BYTES = 16
_MAKE_ONE = "make a key with: openssl rand -base64 32"


class Sealing(Protocol):
    """Seals arguments: a Keyring, or what finds it at its first use."""

    def seal(self, args: str, jid: str, job_class: str) -> str:
        """The JSON text of the arguments, encrypted. Raises EncryptionKeyError if there are no keys."""
        ...

    def digest(self, text: bytes) -> bytes:
        """A digest that needs the newest key. Raises EncryptionKeyError if there are no keys."""
        ...


class Keyring:
    """Keys: the first one seals, each of them opens."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Raises MissingExtraError without the package ``cryptography``."""
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            hint = "install the extra: pip install 'pyworkers-server[crypto]'"
            raise MissingExtraError("encryption needs the package cryptography", hint=hint) from error
        self._ciphers = {_name_of(key): AESGCM(key) for key in keys}
        self._newest = _name_of(keys[0])
        self._digest_key = hashlib.sha256(b"pyworkers unique:" + keys[0]).digest()

    def seal(self, args: str, jid: str, job_class: str) -> str:
        """The JSON text of the arguments, encrypted with the newest key."""
        head, nonce = _VERSION + self._newest, os.urandom(_NONCE_BYTES)
        about = _about(head, jid, job_class)
        # A lone surrogate, which JSON may hold with an escape, is refused by ``encode`` as in a plain job.
        sealed = self._ciphers[self._newest].encrypt(nonce, args.encode(), about)
        return base64.b64encode(head + nonce + sealed).decode()

    def digest(self, text: bytes) -> bytes:
        """HMAC-SHA-256, with a key that is made of the newest one."""
        return hmac.digest(self._digest_key, text, "sha256")

    def open(self, args: Sequence[Any], jid: str, job_class: str) -> list[Any]:
        """The arguments that ``args`` of an encrypted job hold. Raises EncryptionKeyError."""
        from cryptography.exceptions import InvalidTag

        packed = _unpacked(args)
        head, nonce, sealed = packed[:9], packed[9:_HEAD_BYTES], packed[_HEAD_BYTES:]
        cipher = self._ciphers.get(head[1:])
        if cipher is None:
            known = ", ".join(name.hex() for name in self._ciphers)
            raise EncryptionKeyError(f"the arguments need the key {head[1:].hex()}; there are: {known}")
        try:
            text = cipher.decrypt(nonce, sealed, _about(head, jid, job_class))
        except InvalidTag:
            reason = "the arguments were changed, or belong to a job of another id or class"
            raise EncryptionKeyError(reason) from None
        opened: list[Any] = envelope.decode(b'{"args":' + text + b"}")["args"]
        return opened


def parse_keys(text: str) -> list[bytes]:
    """The keys of a file, one base64 text a line; empty lines and those that begin with # do not count.

    Raises ValueError, whose arguments are the reason and the line, 0 if there is no key.
    """
    keys: list[bytes] = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if word and not word.startswith("#"):
            try:
                keys.append(parse_key(word))
            except ValueError as error:
                raise ValueError(str(error), number) from None
    if not keys:
        raise ValueError(f"no key in it: {_MAKE_ONE}", 0)
    return keys


def parse_key(word: str) -> bytes:
    """The key in a base64 text. Raises ValueError, which does not quote it."""
    try:
        key = base64.b64decode(word.translate(str.maketrans("-_", "+/")), validate=True)
    except ValueError:
        raise ValueError(f"not base64: {_MAKE_ONE}") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key of {len(key)} bytes, not {KEY_BYTES}: {_MAKE_ONE}")
    return key


def _name_of(key: bytes) -> bytes:
    """The name of a key, which tells nothing about it."""
    return hashlib.sha256(b"pyworkers key name:" + key).digest()[:_NAME_BYTES]


def _about(head: bytes, jid: str, job_class: str) -> bytes:
    return head + envelope.encode([jid, job_class]).encode()


def _unpacked(args: Sequence[Any]) -> bytes:
    """The bytes of sealed arguments. Raises EncryptionKeyError for anything else."""
    try:
        (text,) = args
        packed = base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        packed = b""
    if not packed.startswith(_VERSION) or len(packed) < _HEAD_BYTES + _TAG_BYTES:
        raise EncryptionKeyError("the job is marked as encrypted, but its arguments are not sealed")
    return packed
