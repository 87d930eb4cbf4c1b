"""Replies: checks the shape of each reply before it is used.

Used by the connections of the master, while a reply is read and its connection is held. The type of a reply
follows from its command. Another shape means that replies and commands are out of step, that a proxy has
mixed replies up, or that the peer is not Redis. Then the connection is closed, and the part of the server
that uses it tries again on a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from redis.asyncio.client import Pipeline
from redis.exceptions import ConnectionError

ReplyReader = Callable[[Any], Any]
"""Makes a value of the reply to one command; raises one of ``_MISREAD`` for another shape."""
T = TypeVar("T")

_BYTES, _INTEGER = frozenset({bytes}), frozenset({int})
# The errors of a reader for an unexpected shape. Redis' refusals are exceptions and are not given to readers.
_MISREAD = (TypeError, ValueError, LookupError, AttributeError)


class UnexpectedReplyError(ConnectionError):
    """A reply whose shape does not fit its command. As a ConnectionError it ends the connection."""


def read(command: str, reader: Callable[[Any], T], reply: Any) -> T:
    """The reply as ``reader`` returns it. Raises UnexpectedReplyError, without the reply's content."""
    try:
        return reader(reply)
    except _MISREAD as error:
        raise UnexpectedReplyError(f"{command} was answered with {_kind(reply)}") from error


class reading:
    """As ``read``, for a block in which redis-py sends a command and reads its reply."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if isinstance(error, _MISREAD):
            raise UnexpectedReplyError(f"{self._command} was answered with another shape") from error


class Readers(dict[str | bytes, Any]):
    """The response callbacks of a redis-py client, which calls them while it holds the connection.

    Each checks the shape, calls redis-py's own callback, and then the reader given as ``read=``.
    """

    def __init__(self, callbacks: Any) -> None:
        super().__init__()
        self._callbacks = callbacks

    def __contains__(self, command: object) -> bool:
        return True

    def __getitem__(self, command: str | bytes) -> Any:
        return partial(_called_back, command, self._callbacks.get(command))


def _called_back(command: Any, then: Callable[..., Any] | None, reply: Any, **options: Any) -> Any:
    last: ReplyReader | None = options.pop("read", None)

    def reader(reply: Any) -> Any:
        if command in SHAPES:
            SHAPES[command](reply)
        value = reply if then is None else then(reply, **options)
        return value if last is None else last(value)

    return read(command, reader, reply)


class CheckedPipeline(Pipeline):
    """A pipeline that checks the replies to all steps of a transaction."""

    async def _execute_transaction(self, connection: Any, commands: Any, raise_on_error: Any) -> Any:
        queued = (b"QUEUED" for _ in commands)
        self._steps: Iterator[bytes | int] = iter((b"OK", *queued, len(commands)))
        return await super()._execute_transaction(connection, commands, raise_on_error)

    async def parse_response(self, connection: Any, command_name: str | bytes, **options: Any) -> Any:
        """As redis-py's, which calls all commands of a transaction ``_`` until it is executed."""
        step = next(self._steps) if command_name == "_" else None
        reply = await super().parse_response(connection, command_name, **options)
        if step is not None:
            read("a transaction", partial(_check_step, step), reply)
        return reply

    def annotate_exception(self, exception: Exception, number: int, command: Any) -> None:
        """Leave the text of Redis, which redis-py quotes behind the command with its arguments."""


def _check_step(expected: bytes | int, reply: Any) -> None:
    found = len(reply) if type(reply) is list else reply
    if type(found) is not type(expected) or found != expected:
        raise ValueError


def integer(reply: Any) -> int:
    """An integer."""
    if type(reply) is not int:
        raise TypeError
    return reply


def nonzero(reply: Any) -> bool:
    """True if an integer is not 0. redis-py's clients return a bool for HEXISTS."""
    return reply if isinstance(reply, bool) else integer(reply) != 0


def blob(reply: Any) -> bytes:
    """Bytes."""
    if type(reply) is not bytes:
        raise TypeError
    return reply


def maybe_blob(reply: Any) -> bytes | None:
    """Bytes or None."""
    return None if reply is None else blob(reply)


def blobs(reply: Any) -> list[bytes]:
    """A list of bytes; in RESP3 it may be a set."""
    if not _BYTES.issuperset(map(type, _items(reply))):
        raise TypeError
    return reply if type(reply) is list else list(reply)


def maybe_blobs(reply: Any) -> list[bytes | None]:
    """A list of bytes, with None for a missing value."""
    return [maybe_blob(item) for item in _items(reply)]


def entries(reply: Any) -> Any:
    """Entries of a stream: an id, and names and values in turn."""
    for name, fields in _items(reply):
        blob(name)
        pairs(fields)
    return reply


def integers(reply: Any) -> list[int]:
    """A list of integers."""
    if not _INTEGER.issuperset(map(type, _items(reply))):
        raise TypeError
    return list(reply)


def begins_with(*kinds: type, rest: type) -> Callable[[Any], list[Any] | None]:
    """A reader for None, or a list that begins with elements of these types; all others are ``rest``."""

    def reader(reply: Any) -> list[Any] | None:
        if reply is None:
            return None
        types = [type(element) for element in _items(reply)]
        if types != [*kinds, *[rest] * (len(types) - len(kinds))]:
            raise TypeError
        return list(reply)

    return reader


def scanned(reply: Any) -> tuple[bytes, list[bytes]]:
    """A page of a scan: the next cursor, and names."""
    cursor, names = reply
    # redis-py makes a number of the cursor of some commands.
    return b"%d" % int(cursor), blobs(names)


def members(reply: Any) -> Any:
    """Members of a sorted set, in RESP3 perhaps in pairs with their scores."""
    for item in _items(reply):
        blob(item[0] if type(item) is list else item)
    return reply


def pairs(reply: Any) -> Any:
    """Names and values, in turn; in RESP3 a dict."""
    if isinstance(reply, dict):
        blobs([*reply, *reply.values()])
    elif len(blobs(reply)) % 2:
        raise ValueError
    return reply


def done(reply: Any) -> Any:
    """OK, or None if a condition was not met. redis-py's clients return True for the OK to SET."""
    if reply is not True and reply not in (b"OK", None):
        raise ValueError
    return reply


def seconds(reply: Any) -> float:
    """The reply to TIME, in epoch seconds."""
    whole, microseconds = reply
    return int(whole) + int(microseconds) / 1e6


def text(reply: Any) -> Any:
    """A text; hiredis decodes it in RESP3."""
    return reply if isinstance(reply, str) else blob(reply)


def _page(reply: Any) -> Any:
    cursor, found = reply
    return int(blob(cursor)), blobs(found)


def _items(reply: Any) -> Any:
    if type(reply) is not list and type(reply) is not set:
        raise TypeError
    return reply


def _kind(reply: Any) -> str:
    if reply is None:
        return "nothing"
    if isinstance(reply, list | set | dict):
        return f"a {type(reply).__name__} of {len(reply)}"
    return (
        f"{len(reply)} bytes" if isinstance(reply, bytes) else f"a value of the type {type(reply).__name__}"
    )


_INTEGERS = (
    "EXISTS EXPIRE HDEL HEXISTS HINCRBY HSET HSETNX INCRBY LLEN LPUSH PEXPIRE SADD SREM UNLINK ZADD ZCARD "
    "ZREM"
)
SHAPES: dict[str, ReplyReader] = {
    **dict.fromkeys(_INTEGERS.split(), integer),
    **dict.fromkeys(("BRPOPLPUSH", "GET", "HGET", "RPOP"), maybe_blob),
    **dict.fromkeys(("HKEYS", "LRANGE", "SMEMBERS", "TIME"), blobs),
    **dict.fromkeys(("CONFIG GET", "HGETALL"), pairs),
    **dict.fromkeys(("XRANGE", "XREVRANGE"), entries),
    "BITFIELD": integers,
    "INFO": text,
    "MGET": maybe_blobs,
    "SET": done,
    "SSCAN": _page,
    "ZRANGE": members,
}
"""Readers of the commands that the master sends; the caller of a script gives its reader as ``read=``."""
