"""The reference of the log events: each event that the code logs, with its level, its fields and its meaning.

Reads the source of pyworkers, and imports none of it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from contrib.reference.sources import calls, trees
from contrib.reference.tables import code, table

_HEAD = """# Log events

Every event of the log, with its most important level and its own fields. Each line has `event`, `level`
and `timestamp`, too; the lines in JSON have `pid` and `identity`, those of a job `jid`, `queue`,
`job_class` and `attempt`. [The log](../monitoring.md#the-log) describes the two formats.

"""
# The sentence about each event, which no call has.
MEANINGS = tomllib.loads(Path(__file__).with_name("meanings.toml").read_text())
_LEVELS = ("debug", "info", "warning", "error")
_NAME = re.compile(r"[a-z]+\.[a-z_]+")


@dataclass(slots=True)
class Event:
    """One event: the levels that it is logged at, and the names of its fields."""

    levels: set[str] = field(default_factory=set)
    fields: dict[str, None] = field(default_factory=dict)


def page() -> str:
    """The page: a table of all events."""
    rows = (
        (
            code(name),
            max(event.levels, key=_LEVELS.index),
            ", ".join(map(code, event.fields)),
            MEANINGS.get(name, ""),
        )
        for name, event in events().items()
    )
    return _HEAD + table(("event", "level", "fields", "meaning"), rows)


@cache
def events() -> Mapping[str, Event]:
    """All events by name."""
    found: dict[str, Event] = {}
    logged = [(path, call, level) for path, call in calls() if (level := _level(call)) and call.args]
    # Calls that choose the event at run time are last: they count where no call names the event.
    for path, call, level in sorted(logged, key=lambda one: not isinstance(one[1].args[0], ast.Constant)):
        fields = dict.fromkeys(keyword.arg for keyword in call.keywords if keyword.arg)
        if isinstance(call.args[0], ast.Constant):
            if not _NAME.fullmatch(str(call.args[0].value)):
                # A sentence for the log of another library.
                continue
            event = found.setdefault(str(call.args[0].value), Event())
            event.levels.add(level)
            event.fields.update(fields)
        else:
            for name in _names_in(path):
                found.setdefault(name, Event({level}, dict(fields)))
    return dict(sorted(found.items()))


def _level(call: ast.Call) -> str:
    """The level of a call of a logger, or the empty text."""
    if not isinstance(call.func, ast.Attribute):
        return ""
    level = "error" if call.func.attr == "exception" else call.func.attr
    # The text last: of all calls in the package, it would take seconds.
    return level if level in _LEVELS and "log" in ast.unparse(call.func.value).lower() else ""


def _names_in(path: str) -> Iterator[str]:
    """The texts of a file that look like events."""
    for node in ast.walk(trees()[path]):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
            yield node.value
