"""Refusals: which code of ``replies`` an exception of redis-py or of the system has.

Used by ``connection``, at the edge. redis-py takes the code off some replies and makes classes of them, and
the causes of a failed connect are only in its chain of exceptions; this is the one place that knows.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator

import redis
import redis.asyncio.sentinel
import redis.sentinel
from redis import exceptions

from pyworkers.store.transport.refusals import TABLE
from pyworkers.store.transport.replies import UnexpectedReplyError

# Older redis-py does not keep the code (status_code came with 6.x).
_CLASSES: tuple[tuple[type[Exception], str], ...] = (
    (UnexpectedReplyError, "UNEXPECTED"),
    (redis.sentinel.MasterNotFoundError, "NOMASTER"),
    (redis.asyncio.sentinel.MasterNotFoundError, "NOMASTER"),
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
    (exceptions.InvalidResponse, "PROTOCOL"),
)
# Replies without a code of their own: Redis' networking.c, script.c, db.c.
_SENTENCES = {
    "max number of clients": "MAXCLIENTS",
    "executing the script can't run this command": "NOPERM",
    "executing the script can't access": "NOPERM",
    "ACL failure in script": "NOPERM",
    "DB index is out of range": "BADDB",
    "unknown command": "UNKNOWN",
}
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (exceptions.ReadOnlyError, "READONLY"),
    (socket.gaierror, "DNS"),
    (ssl.SSLError, "TLS"),
)
# Redis 6.2 wraps an error inside a script: "Error running script (call to f_…): @user_script:9: -OOM …".
_IN_SCRIPT = re.compile(r"@user_script:\s*\d+: -?([A-Z]{3,}) ")
_CODE = re.compile(r"([A-Z]{3,})\b")


def code_of(error: BaseException) -> str:
    """The code, or ``ERR`` where there is none."""
    text = reply_text(error)
    found = (
        _named(getattr(error, "status_code", None))
        or _by_sentence(text)
        or _by_pattern(_CODE.match(text))
        or _by_pattern(_IN_SCRIPT.search(text))
        or next((code for kind, code in _CLASSES if isinstance(error, kind)), "")
    )
    if not found and isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
        found = _by_cause(error)
    return found or "ERR"


def reply_text(error: BaseException) -> str:
    """Redis' own words: in a pipeline, redis-py puts the command before them, with a job's arguments."""
    text = str(error).rpartition(" of pipeline caused error: ")[2]
    code = _named(getattr(error, "status_code", None))
    return text if text.startswith(code) else f"{code} {text}"


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
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
