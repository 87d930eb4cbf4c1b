"""JobStack: where a running job is, and the memory of its process, as its server answers; how Redis holds it.

Pure; a server writes it, and the clients read it. Stacks have files, lines and functions; no values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

WORD = "STACK"
"""The word of the request among the signals of a server; the id of the job follows."""
LIFE_S = 600
"""How long the request and its answer are kept."""
LATE_S = 10.0
"""After this time without an answer, the server has not understood the request, or is gone."""
MOST_CHARACTERS = 64 * 1024


@dataclass(frozen=True, slots=True)
class JobStack:
    """The answer of the server ``server``; before it, only who was asked, of which queue, and when."""

    jid: str
    server: str = ""
    queue: str = ""
    at: float = 0.0
    """The time of the answer, or of the request before it, in epoch seconds by Redis' clock."""
    answered: bool = False
    pid: int = 0
    """The worker process; 0 if the job did not run any more."""
    state: str = ""
    """The state of the process in the words of the system, e.g. ``S (sleeping)``."""
    rss_kb: int = 0
    """The resident memory of the process in KiB; 0 if unknown. ``peak_kb``: the most that it has had."""
    peak_kb: int = 0
    text: str = ""
    """The stacks, with the stacks of the job first."""
    problem: str = ""
    """Why the stacks are missing or incomplete."""

    def as_dict(self) -> dict[str, Any]:
        """Its fields, for JSON."""
        return asdict(self)

    def bounded(self) -> JobStack:
        """With at most ``MOST_CHARACTERS`` of its stacks."""
        if len(self.text) <= MOST_CHARACTERS:
            return self
        return replace(self, text=self.text[:MOST_CHARACTERS].rpartition("\n")[0] + "\n…")

    def is_late(self, now: float) -> bool:
        """True if no answer has come in time."""
        return not self.answered and now - self.at > LATE_S


_DEFAULTS = {field.name: field.default for field in fields(JobStack) if field.name != "jid"}


def _fits(value: Any, default: object) -> bool:
    if type(default) in (int, float):
        return type(value) in (int, type(default)) and 0 <= value < 1 << 53
    return type(value) is type(default)


def read_stack(jid: str, stored: Mapping[str, Any]) -> JobStack:
    """The answer as it is stored; a value that a field cannot have counts as missing."""
    known = {name: stored[name] for name, default in _DEFAULTS.items() if _fits(stored.get(name), default)}
    return JobStack(jid, **known).bounded()
