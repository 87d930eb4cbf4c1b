"""The reference of the errors: each class, and each message that the code gives one, with its fix.

Reads the source of pyworkers and imports ``pyworkers.errors`` alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from contrib.reference.sources import calls, template
from contrib.reference.tables import code, plain, table
from pyworkers import errors
from pyworkers.errors import PyworkersError

_HEAD = """# Errors

Every error of pyworkers, with the messages that the code gives it: `…` stands for a part that is known at run
time. The fix is the second line of the error. `exit_code` is the exit code of a command that the error ends.
The codes that Redis answers are listed in [Redis](../redis.md#while-redis-is-unreachable-or-refuses).
"""


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """One message of an error class, as a template; ``fix`` is its hint, or empty."""

    error: str
    text: str
    fix: str


def page() -> str:
    """The page: a section for each class."""
    return _HEAD + "".join(map(_section, classes()))


def classes() -> list[type[BaseException]]:
    """The public exceptions, in the order of their module."""
    return [
        found
        for name, found in vars(errors).items()
        if inspect.isclass(found) and issubclass(found, BaseException) and not name.startswith("_")
    ]


@cache
def messages() -> tuple[Message, ...]:
    """Every message of every class, sorted, each once."""
    names = {found.__name__ for found in classes() if issubclass(found, PyworkersError)}
    return tuple(sorted(set(_messages(names))))


def _messages(names: set[str]) -> Iterator[Message]:
    for _, call in calls():
        error = str(getattr(call.func, "attr", "") or getattr(call.func, "id", ""))
        text = template(call.args[0]) if error in names and call.args else ""
        if any(map(str.isalpha, text)):
            fixes = [template(keyword.value) for keyword in call.keywords if keyword.arg == "hint"]
            yield Message(error, text, "".join(fix for fix in fixes if fix != "…"))


def _section(found: type[BaseException]) -> str:
    bases = ", ".join(code(base.__name__) for base in found.__bases__)
    exits = f" Exit code {found.exit_code}." if issubclass(found, PyworkersError) else ""
    rows = [(plain(m.text), plain(m.fix)) for m in messages() if m.error == found.__name__]
    listed = "\n" + table(("message", "fix"), rows) if rows else ""
    return f"\n## {found.__name__}\n\nA {bases}.{exits} {inspect.getdoc(found)}\n{listed}"
