"""Alarming: what a table ``[[alarm]]`` must have together.

Pure; used by ``loading``, and by what watches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TARGETS = ("webhook", "slack", "mail")
"""The keys that say where an alarm goes."""
OVER: Mapping[str, float | None] = {"latency": 300.0, "dead": 0.0, "silent": 60.0, "cron": None, "limit": 0.0}
"""The usual ``over`` of each kind; None: it has none."""


def check_alarm(entry: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """What is wrong with the table: the key, the fault and the fix; None if nothing is."""
    when = entry["when"]
    if not any(entry.get(key) for key in TARGETS):
        return "webhook", "is missing", "say where it goes: webhook, slack or mail"
    if when == "dead" and "match" in entry:
        return "match", "does not apply to dead jobs", "leave it out"
    if OVER[when] is None and "over" in entry:
        return "over", f"does not apply to {when}", "leave it out"
    return None
