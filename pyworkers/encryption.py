"""Encryption: the keys of a producer or of a server, read at their first use.

Used by clients, in programs and in jobs, and by worker processes. The keys are from the constructor, else
from the server that runs the job, else from the file that ``PYWORKERS_ENCRYPTION__KEYS`` or the configuration
names. They are never logged, and never sent to another process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyworkers.errors import ConfigError, EncryptionKeyError, PyworkersError
from pyworkers.protocol.message import Message
from pyworkers.protocol.sealing import FIELD, KEY_BYTES, Keyring, parse_key, parse_keys

if TYPE_CHECKING:
    from pyworkers.config.sources import Place

KeySource = str | Path | Sequence[str | bytes]
"""The path of a file with a base64 key a line, or a list of keys: 32 bytes, or base64. The newest first."""
_VARIABLE = "PYWORKERS_ENCRYPTION__KEYS"
_CONFIG = "PYWORKERS_CONFIG"
_HINT = 'name a file with keys in [encryption], keys = "FILE", or in PYWORKERS_ENCRYPTION__KEYS'


FindKeys = Callable[[], Keyring]
# Global, because the server hands its keys to the clients that its jobs make; set before the first job.
_own: FindKeys | None = None


def hand_over(keys: FindKeys | None) -> FindKeys | None:
    """Set the default keys of this process, None for none; returns those before."""
    global _own
    before, _own = _own, keys
    return before


class Encryption:
    """Seals arguments and opens them, with keys that are found at the first use."""

    def __init__(self, source: KeySource | None = None, config: Place | None = None) -> None:
        """``config`` is the configuration to use instead of the file in the environment.

        Raises ConfigError for an invalid key in a list; a file is read later.
        """
        self._config = config
        self._given: Path | Keyring | None = None
        if isinstance(source, str | Path):
            # Absolute: a program may change its working directory before it enqueues.
            self._given = Path(source).absolute()
        elif source is not None:
            self._given = _keyring(source)

    def keys(self) -> Keyring | None:
        """The keys; None if there are none. Raises ConfigError for an invalid file."""
        if isinstance(self._given, Keyring):
            return self._given
        if self._given is not None:
            return _of_file(self._given)
        if _own is not None:
            return _own()
        if path := os.environ.get(_VARIABLE):
            return _of_file(Path(path).absolute())
        if self._config is not None:
            return _of_config(self._config)
        config = os.environ.get(_CONFIG)
        return _of_config(Path(config).absolute()) if config else None

    def seal(self, args: str, jid: str, job_class: str) -> str:
        """The JSON text of the arguments, encrypted. Raises EncryptionKeyError if there are no keys."""
        return self._ready("encrypt=True, but there are no keys").seal(args, jid, job_class)

    def digest(self, text: bytes) -> bytes:
        """A digest that needs the newest key. Raises EncryptionKeyError if there are no keys."""
        return self._ready("encrypt=True, but there are no keys").digest(text)

    def opened(self, message: Message) -> Message:
        """The message of an encrypted job with its arguments. Raises EncryptionKeyError."""
        keys = self._ready("the arguments are encrypted, but there are no keys")
        return message.replace(args=keys.open(message.args, message.jid, message.job_class))

    def opened_if_possible(self, message: Message) -> Message:
        """As ``opened`` for any job; the same message if it is not encrypted, or cannot be decrypted."""
        if message.data.get(FIELD) is not True:
            return message
        try:
            return self.opened(message)
        except PyworkersError:
            return message

    def _ready(self, problem: str) -> Keyring:
        keys = self.keys()
        if keys is None:
            raise EncryptionKeyError(problem, hint=_HINT)
        return keys


def read_keys(path: Path) -> Keyring:
    """The keys in a file. Raises ConfigError, with the line of an invalid key, and MissingExtraError."""
    try:
        return Keyring(parse_keys(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"encryption keys: cannot be read: {error.strerror}", location=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError("encryption keys: not text", location=str(path)) from error
    except ValueError as error:
        reason, line = error.args
        raise ConfigError(
            f"encryption keys: {reason}", location=f"{path}:{line}" if line else str(path)
        ) from None


def _keyring(keys: Sequence[str | bytes]) -> Keyring:
    found: list[bytes] = []
    for number, key in enumerate(keys):
        try:
            found.append(key if isinstance(key, bytes) and len(key) == KEY_BYTES else parse_key(_text(key)))
        except ValueError as error:
            raise ConfigError(f"encryption[{number}]: {error}") from None
    if not found:
        raise ConfigError("encryption: no key in the list")
    return Keyring(found)


def _text(key: object) -> str:
    if isinstance(key, bytes):
        return key.decode("ascii", errors="replace")
    if not isinstance(key, str):
        raise ValueError(f"of type {type(key).__name__}, not bytes or base64")
    return key


# A process reads each file once: with new keys, a producer is restarted, and a server reloaded.
_of_file = lru_cache(maxsize=8)(read_keys)


@lru_cache(maxsize=8)
def _of_config(path: Place) -> Keyring | None:
    # The connection to Redis, which needs the file, reports that it is missing.
    if isinstance(path, Path) and not path.exists():
        return None
    # Imported here, because most producers have no file.
    from pyworkers.config.loading import load

    keys = load(path, env={}).encryption.keys
    return read_keys(Path(keys)) if keys else None
