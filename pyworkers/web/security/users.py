"""Users: the file of ``--auth``, with the name, the role and the hashed password of each user.

Read at the start of the dashboard, and again after each change. Never written.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pyworkers import logs
from pyworkers.api.browse.filter import is_like
from pyworkers.errors import ConfigError
from pyworkers.web.security.passwords import PasswordHash

Role = Literal["read", "enqueue", "operate"]
"""``read`` sees all, ``operate`` also acts; ``enqueue`` is for programs, which enqueue and read results."""
ROLES: tuple[Role, ...] = get_args(Role)
_MOST_BYTES = 1 << 20
_MOST_CHARACTERS = 128
_MOST_PATTERNS = 100
# A change within one tick of the file system's clock leaves the time as it is. The coarsest tick is 2 s.
_SETTLED_NS = 2_000_000_000

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Rights:
    """A role, and the queues for which it counts; as text ``operate``, or ``operate@mail,mail\\:*``."""

    role: Role
    queues: tuple[str, ...] = ()
    """Names of queues, in which each ``*`` is any text; empty: all queues, and what is of no queue."""

    @classmethod
    def parse(cls, text: str) -> Rights:
        """Read the text; a backslash precedes a colon, a comma or a backslash in a name.

        Raises ValueError, with the rule.
        """
        word, sign, rest = text.partition("@")
        role = next((role for role in ROLES if role == word), None)
        if role is None:
            raise ValueError(f"the role is neither {' nor '.join(ROLES)}")
        queues = tuple(map(_unescaped, split(rest, ","))) if sign else ()
        if not all(queue and queue.isprintable() for queue in queues) or len(queues) > _MOST_PATTERNS:
            raise ValueError(f"a role has 1 to {_MOST_PATTERNS} names of queues after @, e.g. operate@mail*")
        if queues and role == "read":
            raise ValueError("the role read is for all queues")
        return cls(role, queues)

    def __str__(self) -> str:
        return f"{self.role}@{','.join(map(_escaped, self.queues))}" if self.queues else self.role

    def cover(self, queue: str) -> bool:
        """True if the role counts for a queue."""
        return not self.queues or any(is_like(queue, pattern) for pattern in self.queues)


def split(text: str, sign: str) -> list[str]:
    """The parts of a text between the signs that have no backslash before them."""
    parts, is_escaped = [""], False
    for char in text:
        if char == sign and not is_escaped:
            parts.append("")
        else:
            is_escaped = char == "\\" and not is_escaped
            parts[-1] += char
    return parts


def _escaped(queue: str) -> str:
    return re.sub(r"([\\:,])", r"\\\1", queue)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


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
                    raise ValueError(f"the user {user.name} is there twice")
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
