"""Alarming: the kinds of alarms, and what a table ``[[alarm]]`` must have together.

Pure; used by ``fields`` and ``loading``, and by what watches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

TARGETS = ("webhook", "slack", "mail")
"""The keys that say where an alarm goes."""


class AlarmKind(NamedTuple):
    """A condition that ``when`` names, in the words of the configuration file."""

    about: str
    matched: str = ""
    """The things whose names ``match`` compares; empty: it does not apply."""
    over: float | None = None
    """The usual ``over``; None: it does not apply."""
    unit: str = ""
    """The unit of ``over``."""


KINDS: Mapping[str, AlarmKind] = {
    "latency": AlarmKind("of queues", "queues", 300.0, "seconds"),
    "dead": AlarmKind("jobs in five minutes", "", 0.0, "jobs"),
    "silent": AlarmKind("servers", "servers", 60.0, "seconds"),
    "cron": AlarmKind("entries whose last run failed", "cron entries"),
    "limit": AlarmKind("jobs that wait for one", "limits", 0.0, "jobs"),
}
"""The kinds of alarms; ``alarms/conditions.py`` finds what is wrong by each."""


def about_when() -> str:
    """The description of ``when``."""
    return f"Condition: {', '.join(f'{name} ({kind.about})' for name, kind in KINDS.items())}."


def about_match() -> str:
    """The description of ``match``."""
    *matched, last = (kind.matched for kind in KINDS.values() if kind.matched)
    return f"Pattern of the {', '.join(matched)} or {last}; without one, all."


def about_over() -> str:
    """The description of ``over``."""
    usual: dict[str, list[str]] = {}
    for name, kind in KINDS.items():
        if kind.over is not None:
            usual.setdefault(kind.unit, []).append(f"{name} ({kind.over:g})")
    parts = (f"{unit} for {' and '.join(names)}" for unit, names in usual.items())
    return f"It begins above this: {', '.join(parts)}."


def check_alarm(entry: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """What is wrong with the table: the key, the fault and the fix; None if nothing is."""
    when = entry["when"]
    kind = KINDS[when]
    if not any(entry.get(key) for key in TARGETS):
        return "webhook", "is missing", "say where it goes: webhook, slack or mail"
    if not kind.matched and "match" in entry:
        return "match", f"does not apply to {when} jobs", "leave it out"
    if kind.over is None and "over" in entry:
        return "over", f"does not apply to {when}", "leave it out"
    return None
