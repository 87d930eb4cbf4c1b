"""Errors: finds the code of each error of redis-py or of the system, and the next step for that code.

Used by every process that connects to Redis. No code outside this file reads the text of an error. The
codes are the first words of Redis' error replies (``createSharedObjects`` in its server.c), and a few of
pyworkers' own for commands without a reply. redis-py removes the code from some replies, and the cause of a
failed connect is only in its chain of exceptions; ``code_of`` finds both.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from errno import errorcode

import redis
from redis import exceptions

from pyworkers.store.transport.replies import UnexpectedReplyError
from pyworkers.store.transport.tls import TlsError

NO_THREAD = "can't start new thread"
"""The text of CPython's RuntimeError for a thread that the system refuses; it has no class."""


class NoPrimaryError(redis.ConnectionError):
    """No sentinel names a living primary."""


class NoNodeError(redis.ConnectionError):
    """No node of a cluster names the primary of the slot."""


class Reaction(Enum):
    """The next step after an error. No step ends the server."""

    RETRY = "retry"
    """Send the same again, soon."""
    RECONNECT = "reconnect"
    """The connection is broken, or leads to the wrong server: send the same again, soon, on a new one."""
    PAUSE = "pause"
    """Redis is reachable and refuses for now: try again after a delay that grows."""
    STOP = "stop"
    """An administrator has to fix it: this part logs the error, and tries again only now and then."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row. ``away``: Redis is unreachable or unusable; otherwise it refuses this one command."""

    code: str
    reaction: Reaction
    away: bool
    meaning: str


def _row(code: str, reaction: Reaction, away: bool, meaning: str) -> tuple[str, Rule]:
    return code, Rule(code, reaction, away, meaning)


_AWAY, _HERE = True, False

TABLE: dict[str, Rule] = dict(
    (
        # No reply
        _row("UNREACHABLE", Reaction.RECONNECT, _AWAY, "Redis cannot be reached"),
        _row("TIMEOUT", Reaction.RECONNECT, _AWAY, "Redis did not answer in time"),
        _row("DNS", Reaction.RECONNECT, _AWAY, "Redis cannot be reached, its name is not known"),
        _row("NOMASTER", Reaction.RECONNECT, _AWAY, "the sentinels name no primary"),
        _row("NONODE", Reaction.RECONNECT, _AWAY, "no node of the cluster names the primary of the slot"),
        _row("TLS", Reaction.STOP, _AWAY, "Redis cannot be reached, because of TLS"),
        _row("PROTOCOL", Reaction.RECONNECT, _AWAY, "the peer does not speak Redis' protocol"),
        _row("UNEXPECTED", Reaction.RECONNECT, _AWAY, "Redis sent an unexpected reply"),
        # Another server will accept the command, or this one soon
        _row("LOADING", Reaction.RECONNECT, _AWAY, "Redis is not ready"),
        _row("MAXCLIENTS", Reaction.RECONNECT, _AWAY, "Redis takes no more connections"),
        _row("READONLY", Reaction.RECONNECT, _AWAY, "Redis takes no writes now"),
        _row("MASTERDOWN", Reaction.RECONNECT, _AWAY, "Redis takes no writes now"),
        _row("CLUSTERDOWN", Reaction.RECONNECT, _AWAY, "Redis takes no writes now"),
        _row("UNBLOCKED", Reaction.RECONNECT, _AWAY, "Redis takes no writes now"),
        _row("MOVED", Reaction.RECONNECT, _AWAY, "another node of the cluster holds the keys"),
        _row("ASK", Reaction.RETRY, _AWAY, "the cluster is moving the keys"),
        _row("TRYAGAIN", Reaction.RETRY, _AWAY, "the cluster is moving the keys"),
        _row("BUSY", Reaction.RETRY, _AWAY, "Redis is busy with a script"),
        # The login
        _row("NOAUTH", Reaction.STOP, _AWAY, "Redis refused the login"),
        _row("WRONGPASS", Reaction.STOP, _AWAY, "Redis refused the login"),
        _row("DENIED", Reaction.STOP, _AWAY, "Redis refused the connection (protected mode)"),
        _row("BADDB", Reaction.STOP, _AWAY, "Redis has no such database"),
        _row("NOPROTO", Reaction.STOP, _AWAY, "Redis does not speak this version of its protocol"),
        # Redis is usable, but refuses the command
        _row("OOM", Reaction.PAUSE, _HERE, "the server's memory is full (maxmemory)"),
        _row("MISCONF", Reaction.PAUSE, _HERE, "Redis cannot save to its disk and takes no writes"),
        _row("NOREPLICAS", Reaction.PAUSE, _HERE, "Redis has too few replicas (min-replicas-to-write)"),
        _row("EXECABORT", Reaction.PAUSE, _HERE, "Redis refused a part of a transaction"),
        _row("NOSCRIPT", Reaction.RETRY, _HERE, "Redis has forgotten a script"),
        _row("UNREGISTERED", Reaction.PAUSE, _HERE, "this server has to register first"),
        _row("NOPERM", Reaction.STOP, _HERE, "Redis does not permit this user to do that (`pyworkers acl`)"),
        _row("WRONGTYPE", Reaction.STOP, _HERE, "a key has the wrong type"),
        _row("CROSSSLOT", Reaction.STOP, _HERE, "on a cluster the namespace needs a hash tag, as {app}:"),
        _row("UNDECLARED", Reaction.STOP, _HERE, "this server refuses scripts that use undeclared keys"),
        _row("UNKNOWN", Reaction.STOP, _HERE, "this server does not have that command"),
    )
)

_WHERE_LOGIN = "[redis] username and password, PYWORKERS_REDIS__PASSWORD, or redis://USER:PASSWORD@HOST"
_RESHARD = "Wait until the slot has moved; if no reshard is under way: redis-cli --cluster fix HOST:PORT."
FIXES: Mapping[str, str] = {
    "NOAUTH": f"Set the password: {_WHERE_LOGIN}.",
    "WRONGPASS": f"Check user name and password: {_WHERE_LOGIN}.",
    "DENIED": f"Set a password in Redis (requirepass), and here: {_WHERE_LOGIN}.",
    "BADDB": "Name a database that exists at the end of redis.url, e.g. /0.",
    "MOVED": "Write redis+cluster://HOST:PORT,HOST:PORT in redis.url; if it is: redis-cli --cluster fix.",
    "ASK": _RESHARD,
    "TRYAGAIN": _RESHARD,
    "CLUSTERDOWN": "redis-cli --cluster check HOST:PORT says what is missing.",
    "UNKNOWN": "If it is a sentinel: redis+sentinel://HOST:PORT,HOST:PORT/NAME in redis.url.",
}
"""The fix for an error, by its code, where the meaning does not name it."""

OTHER = Rule("ERR", Reaction.PAUSE, _HERE, "")
"""A reply without its own code."""


def rule_for(code: str) -> Rule:
    """The row of a code; ``OTHER`` for an unknown one: a newer Redis may have added it."""
    return TABLE.get(code, OTHER)


# Without a reply, or with a text that may quote one of another error.
_OWN_CLASSES: tuple[tuple[type[Exception], str], ...] = (
    (UnexpectedReplyError, "UNEXPECTED"),
    (TlsError, "TLS"),
    (NoPrimaryError, "NOMASTER"),
    (NoNodeError, "NONODE"),
)
# redis-py before 7.4 does not keep the code (``status_code``).
_CLASSES: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.AuthenticationError, "WRONGPASS"),
    (exceptions.AuthorizationError, "NOAUTH"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.NoScriptError, "NOSCRIPT"),
    (exceptions.ExecAbortError, "EXECABORT"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (exceptions.InvalidResponse, "PROTOCOL"),
)
# Replies without their own code: Redis' networking.c, script.c, db.c; or of which redis-py before 7.4
# keeps neither the code nor an exception for it alone.
_SENTENCES = {
    "Authentication required": "NOAUTH",
    "max number of clients": "MAXCLIENTS",
    "executing the script can't run this command": "NOPERM",
    "executing the script can't access": "NOPERM",
    "ACL failure in script": "NOPERM",
    "DB index is out of range": "BADDB",
    "unknown command": "UNKNOWN",
    "nknown subcommand": "UNKNOWN",
    "undeclared key": "UNDECLARED",
}
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "DNS"),
    # Raised while a connection is opened, which redis-py wraps for asyncio.
    (TlsError, "TLS"),
    (NoPrimaryError, "NOMASTER"),
    (NoNodeError, "NONODE"),
    # A peer that ends in a handshake, and one that ends a connection in order.
    (ssl.SSLEOFError, "UNREACHABLE"),
    (ssl.SSLZeroReturnError, "UNREACHABLE"),
    (ssl.SSLError, "TLS"),
)
# Redis 6.2 wraps an error inside a script: "Error running script (call to f_…): @user_script:9: -OOM …".
_IN_SCRIPT = re.compile(r"@user_script:\s*\d+: -?([A-Z]{3,}) ")
_CODE = re.compile(r"([A-Z]{3,})\b")


def code_of(error: BaseException) -> str:
    """The code of an exception; ``ERR`` if it has none."""
    text = reply_text(error)
    found = (
        _by_class(error, _OWN_CLASSES)
        or _named(getattr(error, "status_code", None))
        or _by_sentence(text)
        or _by_pattern(_CODE.match(text))
        or _by_pattern(_IN_SCRIPT.search(text))
        or _by_class(error, _CLASSES)
    )
    if not found and isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
        found = _by_cause(error)
    return found or "ERR"


def leads_elsewhere(error: BaseException) -> bool:
    """True for the refusal of a server that is not the primary: the next command needs another connection."""
    return rule_for(code_of(error)).reaction is Reaction.RECONNECT


def reply_text(error: BaseException) -> str:
    """The text of Redis' reply. In a pipeline, redis-py puts the command, with its arguments, before it."""
    text = str(error).rpartition(" of pipeline caused error: ")[2]
    code = _named(getattr(error, "status_code", None))
    return text if text.startswith(code) else f"{code} {text}"


def cause_of(error: BaseException) -> str:
    """The words of the system for an error, without the address; else the text of the reply."""
    for link in _chain(error):
        if isinstance(link, OSError) and link.strerror:
            # asyncio has its own words for the errors of a connect.
            return os.strerror(link.errno or 0) if link.errno in errorcode else link.strerror
    return reply_text(error)


def _by_class(error: BaseException, classes: Iterable[tuple[type[Exception], str]]) -> str:
    return next((code for kind, code in classes if isinstance(error, kind)), "")


def _named(code: str | None) -> str:
    return code if code in TABLE else ""


def _by_sentence(text: str) -> str:
    return next((code for sentence, code in _SENTENCES.items() if sentence in text), "")


def _by_pattern(match: re.Match[str] | None) -> str:
    return _named(match[1]) if match else ""


def _by_cause(error: BaseException) -> str:
    for link in _chain(error):
        for kind, code in _CAUSES:
            if isinstance(link, kind):
                return code
    return "TIMEOUT" if isinstance(error, redis.TimeoutError | TimeoutError) else "UNREACHABLE"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes; each once, because one that is raised again may be its own cause."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
