"""Replies: what each refusal of Redis, and each broken connection, means for whoever meets it.

Pure; used wherever Redis is talked to. One table decides; nobody else looks at the text of an error. The
codes are the first words of Redis' error replies (its source, ``server.c: createSharedObjects``), and a few
of our own for what never got an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Action(Enum):
    """What to do next. None of them ends the server."""

    RETRY = "retry"
    """The same again, soon."""
    RECONNECT = "reconnect"
    """The connection is broken, or leads to the wrong server: the same again, soon, on a new one."""
    PAUSE = "pause"
    """Redis is there and refuses for now: again after a pause that grows."""
    STOP = "stop"
    """It takes a person to mend: this part stops, with a named error, and only looks again now and then."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row. ``away``: Redis is as good as absent; else it works, and refuses this one thing."""

    code: str
    action: Action
    away: bool
    meaning: str


def _row(code: str, action: Action, away: bool, meaning: str) -> tuple[str, Rule]:
    return code, Rule(code, action, away, meaning)


_AWAY, _HERE = True, False

TABLE: dict[str, Rule] = dict(
    (
        # Never answered
        _row("UNREACHABLE", Action.RECONNECT, _AWAY, "Redis cannot be reached"),
        _row("TIMEOUT", Action.RECONNECT, _AWAY, "Redis did not answer in time"),
        _row("DNS", Action.RECONNECT, _AWAY, "Redis cannot be reached, its name is not known"),
        _row("NOMASTER", Action.RECONNECT, _AWAY, "the sentinels name no primary"),
        _row("TLS", Action.STOP, _AWAY, "Redis cannot be reached by TLS"),
        _row("PROTOCOL", Action.RECONNECT, _AWAY, "what answers does not speak Redis' protocol"),
        _row("UNEXPECTED", Action.RECONNECT, _AWAY, "Redis sent an unexpected reply"),
        # Another server will answer, or this one soon
        _row("LOADING", Action.RECONNECT, _AWAY, "Redis is not ready"),
        _row("MAXCLIENTS", Action.RECONNECT, _AWAY, "Redis takes no more connections"),
        _row("READONLY", Action.RECONNECT, _AWAY, "Redis takes no writes now"),
        _row("MASTERDOWN", Action.RECONNECT, _AWAY, "Redis takes no writes now"),
        _row("CLUSTERDOWN", Action.RECONNECT, _AWAY, "Redis takes no writes now"),
        _row("UNBLOCKED", Action.RECONNECT, _AWAY, "Redis takes no writes now"),
        _row("MOVED", Action.RECONNECT, _AWAY, "another node of the cluster holds the keys"),
        _row("ASK", Action.RETRY, _AWAY, "the cluster is moving the keys"),
        _row("TRYAGAIN", Action.RETRY, _AWAY, "the cluster is moving the keys"),
        _row("BUSY", Action.RETRY, _AWAY, "Redis is busy with a script"),
        # The login
        _row("NOAUTH", Action.STOP, _AWAY, "Redis refused the login"),
        _row("WRONGPASS", Action.STOP, _AWAY, "Redis refused the login"),
        _row("DENIED", Action.STOP, _AWAY, "Redis refused the connection (protected mode)"),
        _row("BADDB", Action.STOP, _AWAY, "Redis has no such database"),
        _row("NOPROTO", Action.STOP, _AWAY, "Redis does not speak this version of its protocol"),
        # Redis works, and refuses
        _row("OOM", Action.PAUSE, _HERE, "the server's memory is full (maxmemory)"),
        _row("MISCONF", Action.PAUSE, _HERE, "Redis cannot save to its disk and takes no writes"),
        _row("NOREPLICAS", Action.PAUSE, _HERE, "Redis has too few replicas (min-replicas-to-write)"),
        _row("EXECABORT", Action.PAUSE, _HERE, "Redis refused a part of a transaction"),
        _row("NOSCRIPT", Action.RETRY, _HERE, "Redis has forgotten a script"),
        _row("UNREGISTERED", Action.PAUSE, _HERE, "this server has to register first"),
        _row("NOPERM", Action.STOP, _HERE, "Redis does not permit this user to do that (`pyworkers acl`)"),
        _row("WRONGTYPE", Action.STOP, _HERE, "a key holds something else than it should"),
        _row("CROSSSLOT", Action.STOP, _HERE, "on a cluster the namespace needs a hash tag, as {app}:"),
        _row("UNKNOWN", Action.STOP, _HERE, "this server does not have that command"),
    )
)

OTHER = Rule("ERR", Action.PAUSE, _HERE, "")
"""What Redis says without a code of its own."""


def rule(code: str) -> Rule:
    """The row of a code; of one that is not in the table, a pause: it may be new, and it was an answer."""
    return TABLE.get(code, OTHER)
