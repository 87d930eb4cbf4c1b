"""Alarms: those that a process watches, those that have begun, what was sent, and their silence.

``pyworkers alarms`` writes what is read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyworkers.api.actions import Action
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.parameters import Parameter
from pyworkers.api.target import Admin
from pyworkers.protocol import timestamps
from pyworkers.protocol.keys import Keys
from pyworkers.store import alarms as store
from pyworkers.store import muting
from pyworkers.store.alarms import silenced_as
from pyworkers.store.calls import Steps
from pyworkers.store.values import decoded_json
from pyworkers.text import valid

_MOST = 200
"""The alarms that are shown."""


@dataclass(frozen=True, slots=True)
class ArmedAlarm:
    """One alarm of the process that watches."""

    name: str
    when: str
    """What it watches, as ``latency``."""
    match: str
    """The pattern of the queues, servers, entries or limits."""
    to: tuple[str, ...]
    """Where it goes: ``webhook``, ``slack``, ``mail``."""
    since: float | None = None
    """Its begin in epoch seconds; None if nothing is wrong."""
    message: str = ""
    """What is wrong."""
    pending: int = 0
    """The messages that no target has taken yet."""
    error: str = ""
    """Why the last try to send one has failed, also if they were given up."""
    silenced: bool = False
    """True for an hour after a person has silenced it."""

    @property
    def state(self) -> str:
        """``silenced``, ``begun`` or ``armed``."""
        return "silenced" if self.silenced else "armed" if self.since is None else "begun"


@dataclass(frozen=True, slots=True)
class SentAlarm:
    """A message that a target has accepted."""

    alarm: str
    state: str
    """``begun`` or ``ended``."""
    to: str
    message: str
    at: float | None
    id: str
    """The same in all messages of one alarm from its begin to its end."""


@dataclass(frozen=True, slots=True)
class Alarms:
    """What is known of alarms; ``watched`` is False if no process watches now."""

    watched: bool
    alarms: Sequence[ArmedAlarm]
    sent: Sequence[SentAlarm]

    def as_dict(self) -> dict[str, Any]:
        """The alarms for JSON."""
        return ALARMS.as_dict(self)


_TONES = {"begun": "bad", "silenced": "warn"}
ALARM: Table[ArmedAlarm] = Table(
    "Alarm",
    Column("name", title="Alarm", empty="(no name)"),
    Column("state", title="State", tone=lambda state: _TONES.get(state, "")),
    Column("when", title="Watches"),
    Column("match", title="Match"),
    Column("to", Kind.TEXTS, "To"),
    Column("since", Kind.MOMENT, "Since", nullable=True),
    Column("message", title="Message"),
    Column("pending", Kind.COUNT, about="The messages that no target has taken yet."),
    Column("error", about="Why the last try to send one has failed, also if they were given up."),
)
SENT: Table[SentAlarm] = Table(
    "SentAlarm",
    Column("alarm", title="Alarm", empty="(no name)"),
    Column("state", title="State"),
    Column("to", title="To"),
    Column("message", title="Message"),
    Column("at", Kind.MOMENT, "Sent", nullable=True),
    Column("id", about="The same in all messages of one alarm from its begin to its end."),
)
ALARMS: Table[Alarms] = Table(
    "Alarms",
    Column("watched", Kind.FLAG),
    Column("alarms", Kind.RECORDS, table=ALARM),
    Column("sent", Kind.RECORDS, table=SENT),
)


def read_alarms(keys: Keys) -> Steps[Alarms]:
    """Read the alarms, and the last hundred messages, the latest first."""
    watcher, begun, sent = yield from store.read_all(keys)
    declared = list(_objects(watcher.get("alarms")))[:_MOST]
    names = [_text(one, "name") for one in declared]
    silenced = yield from muting.read_muted(keys, [silenced_as(name) for name in names])
    alarms = [
        _alarm(one, decoded_json(begun.get(name), dict) or {}, silenced)
        for one, name in zip(declared, names, strict=True)
    ]
    return Alarms(bool(watcher), alarms, [_sent(one) for one in sent])


def _alarm(about: Mapping[str, Any], begun: Mapping[str, Any], silenced: Mapping[str, int]) -> ArmedAlarm:
    name = _text(about, "name")
    to, pending = about.get("to"), begun.get("pending")
    return ArmedAlarm(
        name,
        _text(about, "when"),
        _text(about, "match"),
        tuple(valid(str(target)) for target in to) if isinstance(to, list) else (),
        timestamps.read(begun.get("since")) if begun.get("ended") is None else None,
        _text(begun, "text") if begun.get("ended") is None else "",
        len(pending) if isinstance(pending, list) else 0,
        _text(begun, "error"),
        silenced_as(name) in silenced,
    )


def _sent(one: Mapping[str, Any]) -> SentAlarm:
    alarm, state, to, message, known = (
        _text(one, name) for name in ("alarm", "state", "to", "message", "id")
    )
    return SentAlarm(alarm, state, to, message, timestamps.read(one.get("at")), known)


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict))


def _text(value: Mapping[str, Any], name: str) -> str:
    return valid(str(value.get(name, "")))


def _silence(admin: Admin, name: str) -> bool:
    admin.run(muting.mute(admin.keys, silenced_as(name), 1))
    return True


_NAME = Parameter("name", "The name of the alarm.", required=True)
SILENCE: Action[ArmedAlarm] = Action(
    "alarm.silence",
    "Do not begin this alarm for an hour.",
    [_NAME],
    _silence,
    done="{name} is silenced for an hour",
    label="Silence for an hour",
    offered=lambda alarm: not alarm.silenced,
)
UNSILENCE: Action[ArmedAlarm] = Action(
    "alarm.unsilence",
    "End the silence of this alarm.",
    [_NAME],
    lambda admin, name: admin.run(muting.unmute(admin.keys, silenced_as(name))),
    done="{name} is no longer silenced",
    unchanged="{name} is not silenced",
    label="End the silence",
    offered=lambda alarm: alarm.silenced,
)
ACTIONS = (SILENCE, UNSILENCE)
