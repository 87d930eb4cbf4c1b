"""Sentinel: follows the primary that sentinels name, for all connections of this process that lead to it.

Used by every client of a ``redis+sentinel://`` URL. A planned failover leaves the former primary writable for
about ten seconds, and a primary that hangs closes no connection. So a thread asks the sentinels while such
connections are open, and closes those to a former primary, also while another thread waits for a reply. It
sends no command to Redis.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

from pyworkers.store.transport.errors import cause_of, code_of
from pyworkers.store.transport.replies import reading
from pyworkers.store.transport.tls import TlsError, spell

Address = tuple[str, int]
_Leave = Callable[[Any], object]
T = TypeVar("T")

_STATE, _ALL, _ADDRESS = "SENTINEL MASTER", "SENTINEL MASTERS", "SENTINEL GET-MASTER-ADDR-BY-NAME"

# A sentinel itself needs about a second to notice that the replica that it has promoted is a primary.
_LOOK_S = 0.25
# A sentinel that hangs delays one look by its timeout.
_SKIPPED_S = 5.0
# Of a sentinel that watches no primary of this name.
_UNKNOWN = "No such master"
_NO_ANSWER = (redis.ConnectionError, redis.TimeoutError, redis.ResponseError)
_LOGIN = "it refuses the login: set sentinel_username and sentinel_password in the query of redis.url"
_MEANINGS = {
    "NOAUTH": _LOGIN,
    "WRONGPASS": _LOGIN,
    "NOPERM": "its user may not ask for the primary: grant +sentinel there",
    "UNKNOWN": "this is not a sentinel: name sentinels in redis.url, or use redis:// and rediss://",
    "TIMEOUT": "no answer in time",
}
"""What the code of an error means if a sentinel is asked."""


class NamedPrimary(NamedTuple):
    """The primary that a sentinel names. ``epoch`` grows with each failover."""

    epoch: int
    address: Address


class Sentinels(redis.sentinel.Sentinel):
    """The sentinels of one primary, each by its client, asked when a blocking connection is opened."""

    def __init__(self, nodes: list[redis.Redis], watch: Callable[[], Watch]) -> None:
        super().__init__([])  # type: ignore[no-untyped-call]
        self.sentinels = nodes
        self.watch = watch
        """The watch of the process that calls it."""

    def discover_master(self, service_name: str) -> Address:
        """The address of the primary. Raises MasterNotFoundError, and TlsError if TLS fails with all."""
        refusals = []
        for node in [*self.sentinels]:
            try:
                found = _ask(node, service_name)
            except _NO_ANSWER as error:
                refusals.append(_Refusal.of(node, error))
                continue
            if isinstance(found, NamedPrimary):
                self.sentinels = _first(node, self.sentinels)
                return self.watch().agreed(found)
            refusals.append(_Refusal(_place_of(node), found))
        raise _not_found(refusals, redis.sentinel.MasterNotFoundError)


class AsyncSentinels(redis.asyncio.sentinel.Sentinel):
    """As ``Sentinels``, for asyncio."""

    def __init__(self, nodes: list[redis.asyncio.Redis], watch: Callable[[], Watch]) -> None:
        super().__init__([])  # type: ignore[no-untyped-call]
        self.sentinels = nodes
        self.watch = watch

    async def discover_master(self, service_name: str) -> Address:
        """The address of the primary. Raises MasterNotFoundError, and TlsError if TLS fails with all."""
        refusals = []
        for node in [*self.sentinels]:
            try:
                found = await _ask_async(node, service_name)
            except _NO_ANSWER as error:
                refusals.append(_Refusal.of(node, error))
                continue
            if isinstance(found, NamedPrimary):
                self.sentinels = _first(node, self.sentinels)
                return self.watch().agreed(found)
            refusals.append(_Refusal(_place_of(node), found))
        raise _not_found(refusals, redis.asyncio.sentinel.MasterNotFoundError)


class Followed(redis.Connection):
    """A blocking connection to the primary, which the watch closes when another one is named."""

    def _connect(self) -> Any:
        found = super()._connect()  # type: ignore[no-untyped-call]
        _watch_of(self).opened(found, (self.host, self.port), _shut)
        return found


class AsyncFollowed(redis.asyncio.Connection):
    """As ``Followed``, for asyncio."""

    async def _connect(self) -> None:
        watch, address, loop = _watch_of(self), (self.host, self.port), asyncio.get_running_loop()
        # A task, which the watch can end: a machine that hangs does not answer a connect either.
        opening = asyncio.ensure_future(super()._connect())  # type: ignore[no-untyped-call]
        opening.add_done_callback(_retrieved)
        watch.opened(opening, address, partial(_in_loop, loop, _cancel))
        try:
            await asyncio.wait([opening])
            if opening.cancelled():
                raise redis.ConnectionError("another server is the primary")
            opening.result()
        finally:
            opening.cancel()
        watch.opened(self._writer, address, partial(_in_loop, loop, _abort))


class Watch:
    """The primary that one group of sentinels names, and the connections of this process that lead to it.

    Its thread runs while there are such connections. Safe for use by several threads.
    """

    def __init__(self, nodes: Callable[[], Sequence[redis.Redis]], name: str) -> None:
        self._nodes = nodes
        self._name = name
        # Reentrant: a signal handler may open a connection, too.
        self._lock = threading.RLock()
        self._known: NamedPrimary | None = None
        self._open: dict[weakref.ref[Any], tuple[Address, _Leave]] = {}
        self._listeners: list[Callable[[], object]] = []
        self._thread: threading.Thread | None = None

    def opened(self, connection: object, address: Address, leave: _Leave) -> None:
        """Call ``leave`` with this connection once another server is the primary. No reference is kept."""
        self._open[weakref.ref(connection, self._forget)] = address, leave
        known = self._known
        if known is not None and known.address != address:
            # Another server was named while it was opened.
            leave(connection)
        self._start()

    def agreed(self, found: NamedPrimary) -> Address:
        """The address that a sentinel has just named, or the known one if that is of a later failover."""
        return self._follow(found, only_newer=True).address

    @contextmanager
    def listening(self, changed: Callable[[], object]) -> Iterator[None]:
        """Call ``changed`` after each failover, from any thread."""
        self._listeners.append(changed)
        try:
            yield
        finally:
            self._listeners.remove(changed)

    def _follow(self, found: NamedPrimary, *, only_newer: bool = False) -> NamedPrimary:
        with self._lock:
            known = self._known
            if known is not None and only_newer and found.epoch < known.epoch:
                return known
            self._known = found
        if known is not None and known.address != found.address:
            self._leave_all_but(found.address)
        return found

    def _leave_all_but(self, current: Address) -> None:
        for line, (address, leave) in list(self._open.items()):
            if address != current:
                self._forget(line)
                if (connection := line()) is not None:
                    leave(connection)
        for changed in [*self._listeners]:
            changed()

    def _forget(self, line: weakref.ref[Any]) -> None:
        self._open.pop(line, None)

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="pyworkers-sentinel", daemon=True)
            # The system may have no thread left, and a program that ends starts none: the next connection
            # tries again.
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        asked = [_Asked(node) for node in self._nodes()]
        try:
            while self._is_needed():
                time.sleep(_LOOK_S)
                self._look(asked)
        finally:
            for one in asked:
                one.node.close()

    def _is_needed(self) -> bool:
        with self._lock:
            for line in [*self._open]:
                # An exception may refer to a closed one for long.
                if _is_closed(line()):
                    self._forget(line)
            if not self._open:
                self._thread = None
            return self._thread is not None

    def _look(self, asked: list[_Asked]) -> None:
        """Ask one sentinel; if it names another primary, ask all, and follow the latest failover."""
        one = next((one for one in asked if one.skipped_until < time.monotonic()), None)
        if one is None:
            return
        # The next look asks the next sentinel: this one may be cut off together with a former primary.
        asked.remove(one)
        asked.append(one)
        found = one.address(self._name)
        if found is None or self._known is None or found == self._known.address:
            return
        named = [answer for each in asked if (answer := each.named(self._name)) is not None]
        if named:
            self._follow(max(named))


class _Asked:
    """A sentinel that the watch asks, unless it has not answered a short time ago."""

    def __init__(self, node: redis.Redis) -> None:
        self.node = node
        self.skipped_until = 0.0

    def address(self, name: str) -> Address | None:
        """The address that it names, if it answers."""
        return self._answer(_address, name)

    def named(self, name: str) -> NamedPrimary | None:
        """The living primary that it names, if it answers."""
        found = self._answer(_ask, name)
        return found if isinstance(found, NamedPrimary) else None

    def _answer(self, question: Callable[[redis.Redis, str], T | None], name: str) -> T | None:
        try:
            return question(self.node, name)
        except (redis.RedisError, OSError):
            self.skipped_until = time.monotonic() + _SKIPPED_S
            return None


def _ask(node: redis.Redis, name: str) -> NamedPrimary | str:
    """The living primary that a sentinel names, or why it names none. Raises redis-py's errors."""
    with reading(_STATE):
        try:
            state = node.execute_command(_STATE, name)
        except redis.ResponseError as error:
            if _UNKNOWN not in str(error):
                raise
            return _unknown(name, node.execute_command(_ALL))
        return _named(state, _address(node, name))


async def _ask_async(node: redis.asyncio.Redis, name: str) -> NamedPrimary | str:
    with reading(_STATE):
        try:
            state = await node.execute_command(_STATE, name)
        except redis.ResponseError as error:
            if _UNKNOWN not in str(error):
                raise
            return _unknown(name, await node.execute_command(_ALL))
        return _named(state, _read_address(await node.execute_command(_ADDRESS, name)))


def _address(node: redis.Redis, name: str) -> Address | None:
    with reading(_ADDRESS):
        return _read_address(node.execute_command(_ADDRESS, name))


def _read_address(reply: Any) -> Address | None:
    if not reply:
        return None
    host, port = reply
    return host.decode() if isinstance(host, bytes) else host, int(port)


def _named(state: Mapping[str, Any], address: Address | None) -> NamedPrimary | str:
    """``state`` was read before ``address``.

    The two differ while this sentinel leads a failover: its state is of the former primary until all other
    replicas follow the new one, which may take seconds.
    """
    is_down = state["is_sdown"] or state["is_odown"]
    if address is None or (is_down and address == (state["ip"], state["port"])):
        return f"the primary {spell(state['ip'], state['port'])} is down, and no replica has its place yet"
    return NamedPrimary(state["config-epoch"], address)


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    others = " and ".join(map(repr, sorted(known)))
    found = f"only {others}: correct the name in redis.url" if others else "nor any other one"
    return f"no primary has the name {name!r}, {found}"


class _Refusal(NamedTuple):
    """Why a sentinel gives no address. ``place`` is empty if the text names it."""

    place: str
    text: str
    tls: bool = False

    @classmethod
    def of(cls, node: redis.Redis | redis.asyncio.Redis, error: redis.RedisError) -> _Refusal:
        """The one that an error means."""
        code = code_of(error)
        if code == "TLS":
            return cls("", str(error), tls=True)
        return cls(_place_of(node), _MEANINGS.get(code) or cause_of(error))


def _place_of(node: redis.Redis | redis.asyncio.Redis) -> str:
    options = node.connection_pool.connection_kwargs
    return spell(options["host"], options["port"])


def _not_found(refusals: Sequence[_Refusal], kind: type[redis.ConnectionError]) -> redis.ConnectionError:
    """The error, in one line; sentinels that refuse alike are named together."""
    places: dict[str, list[str]] = {}
    for refusal in refusals:
        places.setdefault(refusal.text, []).append(refusal.place)
    texts = (f"{', '.join(found)}: {text}" if any(found) else text for text, found in places.items())
    return (TlsError if all(refusal.tls for refusal in refusals) else kind)("; ".join(texts))


def _first(node: T, nodes: list[T]) -> list[T]:
    """The sentinels, first the one that has answered: the others may be slow to fail."""
    return [node, *(other for other in nodes if other is not node)]


# --- how a connection is left -----------------------------------------------------------------------------


def _shut(connection: socket.socket) -> None:
    """Wake a thread that reads from it; the thread closes it. Not by the method of SSLSocket, which would let
    that thread write plain text in between.
    """
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _is_closed(connection: Any) -> bool:
    if isinstance(connection, socket.socket):
        return connection.fileno() < 0
    if isinstance(connection, asyncio.StreamWriter):
        return connection.is_closing()
    return connection is None or connection.done()


def _in_loop(loop: asyncio.AbstractEventLoop, leave: _Leave, connection: Any) -> None:
    # The loop may be closed.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(leave, connection)


def _cancel(opening: asyncio.Future[None]) -> None:
    opening.cancel()


def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def _retrieved(opening: asyncio.Future[None]) -> None:
    """asyncio would log the error of an opening that no code awaits any more."""
    if not opening.cancelled():
        opening.exception()


# --- the watches of this process --------------------------------------------------------------------------

# The keys begin with the id of the process: a forked one has neither the thread nor the connections of its
# parent.
_watches: dict[tuple[object, ...], Watch] = {}


def watch_of(key: tuple[object, ...], nodes: Callable[[], Sequence[redis.Redis]], name: str) -> Watch:
    """The watch of this process for the primary ``name`` of the sentinels that ``nodes`` makes clients for.

    ``key`` tells it from the others.
    """
    pid = os.getpid()
    if (watch := _watches.get((pid, *key))) is None:
        for other in [*_watches]:
            if other[0] != pid:
                _watches.pop(other, None)
        # Of two threads, both get the watch of the first.
        watch = _watches.setdefault((pid, *key), Watch(nodes, name))
    return watch


async def watch_primary(pool: Any, on_change: Callable[[], None]) -> None:
    """Call ``on_change`` after each failover of the primary of this pool, until cancelled."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    with pool.sentinel_manager.watch().listening(partial(_in_loop, loop, asyncio.Event.set, changed)):
        while True:
            await changed.wait()
            changed.clear()
            on_change()


def _watch_of(connection: Any) -> Watch:
    watch: Watch = connection.connection_pool.sentinel_manager.watch()
    return watch
