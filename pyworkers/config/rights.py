"""Rights: what a person may do in the dashboard, for all queues or for some, as text and as values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from pyworkers.protocol.patterns import is_like

Role = Literal["read", "enqueue", "operate"]
"""``read`` sees all, ``operate`` also acts; ``enqueue`` is for programs, which enqueue and read results."""
ROLES: tuple[Role, ...] = get_args(Role)
_MOST_PATTERNS = 100


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

    @classmethod
    def union(cls, several: Iterable[Rights]) -> Rights | None:
        """The rights of a person who may do all of these, which are for people; None for none."""
        given = list(several)
        acting = [one for one in given if one.role == "operate"]
        if not acting:
            return given[0] if given else None
        is_limited = all(one.queues for one in acting)
        queues = dict.fromkeys(queue for one in acting for queue in one.queues) if is_limited else ()
        return cls("operate", tuple(queues))

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


def check_groups(groups: Mapping[str, object]) -> None:
    """Check the table ``[web.oidc.groups]``. Raises ValueError with the group."""
    for group, text in groups.items():
        if not isinstance(text, str):
            raise ValueError(f'the rights of {group!r} must be a string, e.g. "operate", not {text!r}')
        try:
            rights = Rights.parse(text)
        except ValueError as error:
            raise ValueError(f"{group!r}: {error}") from error
        if rights.role == "enqueue":
            raise ValueError(f"{group!r}: the role enqueue is for programs: write read or operate")
