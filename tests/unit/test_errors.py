"""The table of errors, row by row: the exception of redis-py, its code, and the meaning of the code."""

from __future__ import annotations

import random
import socket
import ssl

import pytest
import redis
from redis._parsers.base import BaseParser

from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError
from pyworkers.server.health import backoff_s
from pyworkers.store.transport import errors
from pyworkers.store.transport.connections import translate
from pyworkers.store.transport.errors import NoNodeError, NoPrimaryError, Reaction, code_of, rule_for
from pyworkers.store.transport.replies import UnexpectedReplyError
from tests.helpers.support import ROOT

AWAY, HERE = RedisUnavailableError, StoreError
RETRY, RECONNECT, PAUSE, STOP = Reaction.RETRY, Reaction.RECONNECT, Reaction.PAUSE, Reaction.STOP

# Replies as they come over the wire; redis-py makes exceptions of them.
REPLIES = [
    ("LOADING Redis is loading the dataset in memory", "LOADING", RECONNECT, AWAY),
    ("READONLY You can't write against a read only replica.", "READONLY", RECONNECT, AWAY),
    ("MASTERDOWN Link with MASTER is down", "MASTERDOWN", RECONNECT, AWAY),
    ("CLUSTERDOWN The cluster is down", "CLUSTERDOWN", RECONNECT, AWAY),
    ("UNBLOCKED force unblock from blocking operation", "UNBLOCKED", RECONNECT, AWAY),
    ("MOVED 3999 127.0.0.1:6381", "MOVED", RECONNECT, AWAY),
    ("ERR max number of clients reached", "MAXCLIENTS", RECONNECT, AWAY),
    ("ERR max number of clients + cluster connections reached", "MAXCLIENTS", RECONNECT, AWAY),
    ("TRYAGAIN Multiple keys request during rehashing of slot", "TRYAGAIN", RETRY, AWAY),
    ("ASK 3999 127.0.0.1:6381", "ASK", RETRY, AWAY),
    ("BUSY Redis is busy running a script.", "BUSY", RETRY, AWAY),
    ("NOAUTH Authentication required.", "NOAUTH", STOP, AWAY),
    ("WRONGPASS invalid username-password pair or user is disabled.", "WRONGPASS", STOP, AWAY),
    ("ERR invalid password", "WRONGPASS", STOP, AWAY),
    ("DENIED Redis is running in protected mode", "DENIED", STOP, AWAY),
    ("ERR DB index is out of range", "BADDB", STOP, AWAY),
    ("NOPROTO unsupported protocol version", "NOPROTO", STOP, AWAY),
    ("OOM command not allowed when used memory > 'maxmemory'.", "OOM", PAUSE, HERE),
    ("MISCONF Redis is configured to save RDB snapshots", "MISCONF", PAUSE, HERE),
    ("NOREPLICAS Not enough good replicas to write.", "NOREPLICAS", PAUSE, HERE),
    ("EXECABORT Transaction discarded because of previous errors.", "EXECABORT", PAUSE, HERE),
    ("NOSCRIPT No matching script. Please use EVAL.", "NOSCRIPT", RETRY, HERE),
    ("UNREGISTERED this server is not registered yet", "UNREGISTERED", PAUSE, HERE),
    ("NOPERM this user has no permissions to run the 'lpush' command", "NOPERM", STOP, HERE),
    ("ERR The user executing the script can't run this command script: 6", "NOPERM", STOP, HERE),
    ("ERR ACL failure in script: User u has no permissions", "NOPERM", STOP, HERE),
    ("WRONGTYPE Operation against a key", "WRONGTYPE", STOP, HERE),
    ("CROSSSLOT Keys in request don't hash to the same slot", "CROSSSLOT", STOP, HERE),
    ("ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.", "UNKNOWN", STOP, HERE),
    ("ERR Error running script: script tried accessing undeclared key", "UNDECLARED", STOP, HERE),
    ("ERR unknown command 'EVALSHA'", "UNKNOWN", STOP, HERE),
    ("ERR something new", "ERR", PAUSE, HERE),
    ("NEWCODE of a later server", "ERR", PAUSE, HERE),
    # Inside a script: by Redis 7, and as Redis 6.2 wraps it.
    ("OOM command not allowed script: 58, on @user_script:1.", "OOM", PAUSE, HERE),
    ("ERR Error running script (call to f_1): @user_script:9: -READONLY You", "READONLY", RECONNECT, AWAY),
    ("ERR Error running script (call to f_1): @user_script: 9: WRONGTYPE Operation", "WRONGTYPE", STOP, HERE),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "code", "reaction", "kind"), REPLIES)
def test_a_reply(reply: str, code: str, reaction: Reaction, kind: type[PyworkersError]) -> None:
    error = BaseParser.parse_error(reply)
    assert code_of(error) == code
    assert rule_for(code).reaction is reaction
    found = translate(error)
    assert (type(found), found.code) == (kind, code)
    # As redis-py before 7.4 makes it.
    error.status_code = None
    assert rule_for(code_of(error)).away == (kind is AWAY)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__context__ = cause
    return error


def repeated() -> Exception:
    """An error that was raised again while it was handled: the cause of its own cause."""
    error = redis.ConnectionError("again")
    return caused(error, caused(OSError("between"), error))


EXCEPTIONS = [
    (repeated(), "UNREACHABLE", RECONNECT, AWAY),
    (redis.ConnectionError("Error 111"), "UNREACHABLE", RECONNECT, AWAY),
    (ConnectionResetError(104, "reset"), "UNREACHABLE", RECONNECT, AWAY),
    (BrokenPipeError(32, "pipe"), "UNREACHABLE", RECONNECT, AWAY),
    (redis.TimeoutError("late"), "TIMEOUT", RECONNECT, AWAY),
    (UnexpectedReplyError("GET was answered with a list of 1"), "UNEXPECTED", RECONNECT, AWAY),
    (TimeoutError(), "TIMEOUT", RECONNECT, AWAY),
    (caused(redis.ConnectionError("Error -2"), socket.gaierror(-2, "unknown")), "DNS", RECONNECT, AWAY),
    (socket.gaierror(-3, "Temporary failure"), "DNS", RECONNECT, AWAY),
    (caused(redis.ConnectionError("Error 1"), ssl.SSLCertVerificationError("expired")), "TLS", STOP, AWAY),
    (ssl.SSLError("wrong version"), "TLS", STOP, AWAY),
    (caused(redis.ConnectionError("Error 8"), ssl.SSLEOFError(8, "EOF")), "UNREACHABLE", RECONNECT, AWAY),
    (caused(redis.ConnectionError("h:1"), NoNodeError("h:1")), "NONODE", RECONNECT, AWAY),
    (NoPrimaryError("h:1: no answer in time"), "NOMASTER", RECONNECT, AWAY),
    (caused(redis.ConnectionError("h:1"), NoPrimaryError("h:1")), "NOMASTER", RECONNECT, AWAY),
    (redis.exceptions.InvalidResponse("Protocol Error: b'HTTP/1.1'"), "PROTOCOL", RECONNECT, AWAY),
    (redis.ResponseError("Command # 2 (LPUSH q secret) of pipeline caused error: OOM x"), "OOM", PAUSE, HERE),
    (redis.DataError("no"), "ERR", PAUSE, HERE),
]


@pytest.mark.parametrize(("error", "code", "reaction", "kind"), EXCEPTIONS)
def test_an_exception(error: Exception, code: str, reaction: Reaction, kind: type[PyworkersError]) -> None:
    found = translate(error)
    assert (found.code, rule_for(found.code).reaction, type(found)) == (code, reaction, kind)


def test_every_row_is_met_here() -> None:
    met = {row[1] for row in REPLIES} | {row[1] for row in EXCEPTIONS}
    assert met == set(errors.TABLE) | {"ERR"}


def test_the_text_of_a_reply_is_redis_own() -> None:
    error = BaseParser.parse_error("WRONGPASS invalid username-password pair")
    # redis-py before 7.4 leaves the code out.
    text = translate(error).message.replace("WRONGPASS ", "")
    assert text == "Redis refused the login: invalid username-password pair"


@pytest.mark.parametrize(("reaction", "longest"), [(RETRY, 1), (RECONNECT, 1), (PAUSE, 1), (STOP, 5)])
def test_the_pauses_grow_are_capped_and_jittered(reaction: Reaction, longest: float) -> None:
    rng = random.Random(1)
    for failures in range(1, 100):
        most = min(0.05 * 2 ** (failures - 1), longest)
        drawn = {backoff_s(failures, rng, reaction) for _ in range(20)}
        assert len(drawn) > 1
        assert all(most / 2 <= delay <= most for delay in drawn)


def test_the_documentation_names_every_code() -> None:
    page = (ROOT / "contrib" / "docs" / "redis.md").read_text()
    for rule in errors.TABLE.values():
        logged = "`redis.down`" if rule.away else "`redis.refused`, `queue.broken`"
        assert f"| `{rule.code}` | {rule.meaning} | {logged} |" in page
