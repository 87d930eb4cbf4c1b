"""Incident: one alarm from its begin to its end, as it is stored, and what is still to be told of it.

Pure. An incident is stored before its first message leaves, so that each message has its id, and one that may
not have arrived is sent again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import simplejson

from pyworkers.store.values import decoded_json

BEGUN, ENDED = "begun", "ended"
_CALM_S = 30.0
"""An alarm ends when its reason has been gone for this time."""
_FIRST_S, _LONGEST_S = 10.0, 300.0
"""Between two tries to send a message."""
_LONGEST = 500
"""The characters of an error that are kept."""
_LATEST, _MOST_TRIES = 1e11, 1000
"""Of what is stored: another program may have written any number."""
_GIVEN_UP_S, _LEAST_TRIES = 3600.0, 10
"""A message that could not be sent for this time is given up, with a line in the log. It was tried this
often at least: the clock may be put forward by an hour.
"""


@dataclass(frozen=True, slots=True)
class Incident:
    """An alarm that has begun. Times are epoch seconds."""

    id: str
    name: str
    since: float
    text: str
    """What is wrong, in one line."""
    pending: tuple[tuple[str, str], ...]
    """What is still to be sent: the target, and ``begun`` or ``ended``; in this order for each target."""
    seen: float
    """When the reason was seen last."""
    ended: float | None = None
    tries: int = 0
    next_at: float = 0.0
    """When the next try is due."""
    first_try: float | None = None
    """When the oldest message that is pending was tried first."""
    error: str = ""
    """Why the last try has failed, also if its messages were given up."""

    def dump(self) -> str:
        """The incident as it is stored."""
        return simplejson.dumps(asdict(self))

    @classmethod
    def load(cls, name: str, raw: bytes) -> Incident | None:
        """The stored incident of this alarm; None for what another program has written."""
        value = decoded_json(raw, dict) or {}
        try:
            pending = tuple((str(target), str(state)) for target, state in value["pending"])
            known: dict[str, Any] = {item.name: value[item.name] for item in fields(cls)}
            times = [known["since"], known["seen"], known["next_at"]]
            times += [known[word] for word in ("ended", "first_try") if known[word] is not None]
            fits = all(isinstance(moment, int | float) and abs(moment) < _LATEST for moment in times)
            fits = fits and isinstance(known["tries"], int) and 0 <= known["tries"] < _MOST_TRIES
            texts = (known["id"], known["text"], known["error"])
            if not (fits and all(isinstance(text, str) for text in texts)):
                return None
            if known["name"] != name:
                return None
            return cls(**{**known, "pending": pending})
        except (KeyError, TypeError, ValueError):
            return None

    def told(self, sent: Sequence[tuple[str, str]], now: float, error: str = "") -> Incident:
        """After a try: without the messages that were ``sent``; ``error`` says why others were not."""
        pending = tuple(message for message in self.pending if message not in sent)
        if sent and not pending:
            return replace(self.without_messages(), error="")
        wait_s = min(_LONGEST_S, _FIRST_S * 2.0**self.tries)
        first = now if self.first_try is None else self.first_try
        tries = self.tries + 1
        return replace(
            self, pending=pending, tries=tries, next_at=now + wait_s, first_try=first, error=error[:_LONGEST]
        )

    def without_messages(self) -> Incident:
        """Nothing is to be sent any more; the tries of a later message count from 0."""
        return replace(self, pending=(), tries=0, first_try=None)

    def due(self, now: float) -> list[tuple[str, str]]:
        """The messages to send now: the oldest one of each target."""
        # A later time is from a clock that was put back, or from the clock of another machine.
        if 0 < self.next_at - now <= _LONGEST_S:
            return []
        return list({target: (target, state) for target, state in reversed(self.pending)}.values())

    def hopeless(self, now: float) -> bool:
        """True if what is pending could not be sent for an hour, and ten times at least."""
        first, tried = self.first_try, self.tries >= _LEAST_TRIES
        return bool(self.pending) and tried and first is not None and now - first > _GIVEN_UP_S

    @property
    def over(self) -> bool:
        """True if it has ended, and all is told."""
        return self.ended is not None and not self.pending


def advance(
    incident: Incident | None, name: str, text: str | None, targets: Sequence[str], now: float
) -> Incident | None:
    """The incident after a look; ``text`` is what is wrong now, or None. None: nothing is wrong."""
    if incident is None:
        if text is None:
            return None
        return Incident(
            secrets.token_hex(8), name, now, text, tuple((target, BEGUN) for target in targets), now
        )
    if incident.ended is not None:
        return incident
    if text is not None:
        return replace(incident, text=text, seen=now)
    if incident.seen > now:
        # The clock was put back.
        return replace(incident, seen=now)
    if now - incident.seen < _CALM_S:
        return incident
    ends = tuple((target, ENDED) for target in targets)
    return replace(incident, ended=now, pending=(*incident.pending, *ends), next_at=0.0)
