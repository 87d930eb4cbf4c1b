"""Users: the file of ``--auth``, with the name, the role and the hashed password of each user.

Read at the start of the dashboard, and again after each change. Never written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyworkers import logs
from pyworkers.config.rights import Rights, split
from pyworkers.errors import ConfigError
from pyworkers.web.security.passwords import PasswordHash

_MOST_BYTES = 1 << 20
_MOST_CHARACTERS = 128
# A change within one tick of the file system's clock leaves the time as it is. The coarsest tick is 2 s.
_SETTLED_NS = 2_000_000_000

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class User:
    """One line of the file."""

    name: str
    rights: Rights
    password: PasswordHash

    def __str__(self) -> str:
        return f"{self.name}:{self.rights}:{self.password}"


def check_name(name: str) -> None:
    """Raise ValueError, with the rule, for a name that a line cannot hold."""
    bad = not name or name != name.strip() or ":" in name or name.startswith("#") or not name.isprintable()
    if bad or len(name) > _MOST_CHARACTERS:
        raise ValueError(
            f"a name has 1 to {_MOST_CHARACTERS} printable characters without a colon, and begins with no #"
        )


def parse(text: str, source: str) -> Mapping[str, User]:
    """The users in a file's text, by name. Raises ConfigError with the line."""
    found: dict[str, User] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                user = _parse_line(line.strip())
                if user.name in found:
                    raise ValueError(f"the user {user.name} is named twice")
            except ValueError as error:
                hint = "a line is name:role:hash, as `pyworkers web-user NAME ROLE` prints it"
                raise ConfigError(str(error), hint=hint, location=f"{source}:{number}") from error
            found[user.name] = user
    return found


def _parse_line(line: str) -> User:
    name, rights, hashed = _parts(line)
    check_name(name)
    return User(name, Rights.parse(rights), PasswordHash.parse(hashed))


def _parts(line: str) -> list[str]:
    name, *rest = line.split(":", 1)
    # A name may end with a backslash: none is an escape there.
    parts = [name, *(split(rest[0], ":") if rest else ())]
    if len(parts) != 3:
        raise ValueError(f"a line has three parts with colons between them, not {len(parts)}")
    return parts


class UserFile:
    """The users of a file; raises ConfigError if it is invalid at the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = _state(path)
        self._users = self._read()

    def users(self) -> Mapping[str, User]:
        """The users by name. After a change for the worse, those before it: the log says why."""
        state = _state(self._path)
        if state != self._state or _is_fresh(state):
            try:
                self._users = self._read()
            except ConfigError as error:
                if state != self._state:
                    log.error("web.users_invalid", error=str(error), kept=len(self._users))
            self._state = state
        return self._users

    def _read(self) -> Mapping[str, User]:
        try:
            with self._path.open(encoding="utf-8-sig") as file:
                text = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", location=str(self._path)) from error
        except ValueError as error:
            raise ConfigError("is not UTF-8", location=str(self._path)) from error
        if len(text) > _MOST_BYTES:
            raise ConfigError(f"is larger than {_MOST_BYTES} bytes", location=str(self._path))
        return parse(text, str(self._path))


def _state(path: Path) -> tuple[int, int, int] | None:
    """What changes with the file: its number, its size, its time; None if it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _is_fresh(state: tuple[int, int, int] | None) -> bool:
    return state is not None and abs(time.time_ns() - state[2]) < _SETTLED_NS
