"""Flow: the effects that the end of a job has, by the fields of its envelope.

Pure. Worker, master and ``api`` compute them from the envelope alone, so that a job has the same effects
however it ends: done, dead, lost with its worker, cancelled, or deleted by hand. Each feature is one rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyworkers.protocol.effects import Effect
from pyworkers.protocol.flow.ending import Ended

Rule = Callable[[Ended], Iterable[Effect]]
RULES: Mapping[str, Rule] = {}
"""The rule for each field of the envelope that has one."""
FIELDS = frozenset(RULES)


def effects_of(ended: Ended) -> tuple[Effect, ...]:
    """The effects of an end; none for a job without one of ``FIELDS``."""
    if FIELDS.isdisjoint(ended.data):
        return ()
    return tuple(effect for field, rule in RULES.items() if field in ended.data for effect in rule(ended))
