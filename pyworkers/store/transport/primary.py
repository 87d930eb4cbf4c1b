"""Primary: finds the primary that a directory names, and follows it with all connections of this process.

Used by every client of a URL of sentinels or of a cluster. A planned failover by sentinels leaves the former
primary writable for about ten seconds, and a primary that hangs closes no connection. So a thread asks the
directory while such connections are open, and closes those to a former primary, also while another thread
waits for a reply. A sentinel announces that it promotes a replica about a second before it names it: until
then no command begins, because its writes would be lost. The thread sends no command that changes anything.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from pyworkers.store.transport.errors import cause_of, code_of, leads_elsewhere
from pyworkers.store.transport.mismatch import (
    AsyncPlainConnection,
    AsyncTlsConnection,
    PlainConnection,
    TlsConnection,
)
from pyworkers.store.transport.replies import reading
from pyworkers.store.transport.tls import TlsError, spell

Address = tuple[str, int]
_Leave = Callable[[Any], object]
T = TypeVar("T")

Question = Generator[tuple[str, ...], Any, T]
"""Yields commands, gets their replies, and returns what they mean. Refusals are raised where it yields."""

QUESTION_TIMEOUT_S = 1.0
# A sentinel itself needs about a second to notice that the replica that it has promoted is a primary.
_LOOK_S = 0.25
# One that hangs delays one look by its timeout.
_SKIPPED_S = 5.0
# A promotion that is announced and takes longer than this may have failed.
_PROMOTION_S = 3.0
_PROMOTION_PAUSE_S = 0.02
# While Valkey moves a slot at once, its node pauses for about half a second, and answers MOVED afterwards.
_ANSWERED_S = 1.0
# The numbers of failovers begin anew where sentinels or a cluster are set up again, e.g. from a backup.
_TRUSTED_S = 30.0
_NO_ANSWER = (redis.ConnectionError, redis.TimeoutError, redis.ResponseError)


class NamedPrimary(NamedTuple):
    """The primary that is named. ``epoch`` grows with each failover."""

    epoch: int
    address: Address
    nodes: Sequence[Address] = ()
    """All that may be asked from now on; none: the servers in the URL."""


class Directory(ABC):
    """What names the primary, at several places, and the questions to it."""

    kind: ClassVar[str]
    """The end of the scheme of its URL."""
    unnamed: ClassVar[type[redis.ConnectionError]]
    """The error if no place names a primary."""
    meanings: ClassVar[Mapping[str, str]]
    """What the code of an error means if a place is asked."""
    answers_moved: ClassVar[bool] = False
    """True if a former primary refuses all commands, and says which server is the primary."""
    channels: ClassVar[Sequence[str]] = ()
    """Where a place announces that it promotes a replica, and that this is done."""
    places: Sequence[Address]
    name: str

    @abstractmethod
    def login(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The login there; ``options`` are the options of the connections to the primary."""

    @abstractmethod
    def named(self, asked: Address) -> Question[NamedPrimary | str]:
        """Ask the place ``asked`` for the living primary; a text says why it names none."""

    @abstractmethod
    def address(self, asked: Address) -> Question[Address | None]:
        """As ``named``, at the least cost."""

    def replaced(self, _channel: str, _text: str) -> Address | None:
        """The primary that is about to be replaced, by an announcement; None if that is done."""
        return None


class Primary:
    """The primary that a directory names, for connections with the same options."""

    def __init__(self, directory: Directory, options: Mapping[str, Any]) -> None:
        """``options`` are the options of the connections to the primary."""
        self.directory = directory
        kept = {key: value for key, value in options.items() if key.startswith("socket_") or key == "tls"}
        self.options: Mapping[str, Any] = {
            **kept,
            # The replies in RESP3 differ between versions of redis-py.
            "protocol": 2,
            "kind": directory.kind,
            # A place that hangs, perhaps with the primary on its machine, must not delay the next question.
            "socket_timeout": QUESTION_TIMEOUT_S,
            "socket_connect_timeout": QUESTION_TIMEOUT_S,
            **directory.login(options),
        }
        """The options of the connections to the directory."""

    def find(self) -> Address:
        """The address of the primary. Raises redis-py's ConnectionError, and TlsError if TLS fails at all."""
        while self.watch.promotes:
            time.sleep(_PROMOTION_PAUSE_S)
        refusals = []
        for place in self.watch.places:
            try:
                with self.client(place) as client:
                    found = _answer(client, self.directory.named(place))
            except _NO_ANSWER as error:
                refusals.append(_Refusal.of(self.directory, place, error))
                continue
            if isinstance(found, NamedPrimary):
                return self.watch.agreed(found, place)
            refusals.append(_Refusal(spell(*place), found))
        raise _not_found(refusals, self.directory.unnamed)

    async def find_async(self) -> Address:
        """As ``find``, for asyncio."""
        while self.watch.promotes:
            await asyncio.sleep(_PROMOTION_PAUSE_S)
        refusals = []
        for place in self.watch.places:
            try:
                async with self._async_client(place) as client:
                    found = await _answer_async(client, self.directory.named(place))
            except _NO_ANSWER as error:
                refusals.append(_Refusal.of(self.directory, place, error))
                continue
            if isinstance(found, NamedPrimary):
                return self.watch.agreed(found, place)
            refusals.append(_Refusal(spell(*place), found))
        raise _not_found(refusals, self.directory.unnamed)

    @property
    def watch(self) -> Watch:
        """The watch of the process that calls it."""
        options = self.options
        login = options.get("username"), options.get("password")
        key = self.directory.kind, self.directory.name, *self.directory.places, login, options.get("tls")
        return _watch_of(key, self)

    @property
    def ends(self) -> list[dict[str, Any]]:
        """The options of the connection to each place."""
        return [self._at(place) for place in self.directory.places]

    def client(self, place: Address) -> redis.Redis:
        """A client of one place."""
        kind = TlsConnection if "tls" in self.options else PlainConnection
        pool = redis.ConnectionPool(connection_class=kind, **self._at(place), retry=Retry(NoBackoff(), 0))
        return redis.Redis.from_pool(pool)

    def _async_client(self, place: Address) -> redis.asyncio.Redis:
        kind = AsyncTlsConnection if "tls" in self.options else AsyncPlainConnection
        retry = AsyncRetry(NoBackoff(), 0)
        pool = redis.asyncio.ConnectionPool(connection_class=kind, **self._at(place), retry=retry)
        return redis.asyncio.Redis.from_pool(pool)

    def _at(self, place: Address) -> dict[str, Any]:
        host, port = place
        return {**self.options, "host": host, "port": port}

    def opened(self, connection: object, address: Address, leave: _Leave) -> None:
        """Call ``leave`` with this connection once another server is the primary. No reference is kept."""
        self.watch.opened(connection, address, leave)

    def at(self, node: Address) -> Node:
        """One node of the cluster, for connections with the same options."""
        return Node(self, node)

    def leads_to(self, address: Address) -> bool:
        """False if another server is known to be the primary, or is about to be."""
        watch = self.watch
        known = watch.known
        return known is None or (known.address == address and not watch.promotes)

    def moved(self, error: Any) -> None:
        """Ask the node first that another one names, in a refusal with its address."""
        if (node := self.node_in(error)) is not None:
            self.watch.ask_first(node)

    def node_in(self, error: Any) -> Address | None:
        """The node in a refusal of the primary; without a host, it is on the same one."""
        known = self.watch.known
        host = error.host or (known and known.address[0])
        return (host, error.port) if host else None

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` after each failover, until cancelled."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        with self.watch.listening(partial(_in_loop, loop, asyncio.Event.set, changed)):
            while True:
                await changed.wait()
                changed.clear()
                on_change()


class Node(Primary):
    """A node that imports the slot, in the place of the primary, for as long as the slot moves."""

    def __init__(self, primary: Primary, address: Address) -> None:
        self.directory, self.options = primary.directory, primary.options
        self._address = address

    def find(self) -> Address:
        """Its address."""
        return self._address

    async def find_async(self) -> Address:
        """Its address."""
        return self._address

    def opened(self, connection: object, address: Address, leave: _Leave) -> None:
        """Nothing: the calls that asked for it end their connections."""

    def leads_to(self, address: Address) -> bool:
        """True, whichever is the primary."""
        return True


class Followed(redis.Connection):
    """A blocking connection to the primary, which the watch closes when another one is named."""

    def __init__(self, *, primary: Primary, **options: Any) -> None:
        super().__init__(**options, kind=primary.directory.kind, announced=True)  # type: ignore[no-untyped-call]
        self._primary = primary
        self.is_left = False
        """True after the refusal of a server that is not the primary: a pool closes it."""

    @property
    def is_former(self) -> bool:
        """True if another server is the primary, or is about to be: no command may begin."""
        return not self._primary.leads_to((self.host, self.port))

    def connect(self) -> None:
        """As redis-py's. Its pool calls it before it lends a connection: one to a former primary is left."""
        if self._sock is not None and self.is_former:
            self.disconnect()
        super().connect()  # type: ignore[no-untyped-call]

    def _connect(self) -> Any:
        self.is_left = False
        while True:
            self.host, self.port = self._primary.find()
            try:
                return super()._connect()  # type: ignore[no-untyped-call]
            except (redis.ConnectionError, OSError):
                # Nothing was sent: another server may be the primary by now.
                if not self.is_former:
                    raise

    def opens(self, opened: socket.socket) -> None:
        """Have the watch end its waits, also for a connect: a machine that hangs does not answer it."""
        self._primary.opened(opened, (self.host, self.port), _shut)
        if self.is_former:
            raise redis.ConnectionError("another server is the primary")

    def read_response(self, *args: Any, **options: Any) -> Any:
        """As redis-py's."""
        try:
            return super().read_response(*args, **options)
        except redis.ResponseError as error:
            self.is_left = self.is_left or leads_elsewhere(error)
            raise


class AsyncFollowed(redis.asyncio.Connection):
    """As ``Followed``, for asyncio."""

    def __init__(self, *, primary: Primary, **options: Any) -> None:
        super().__init__(**options, kind=primary.directory.kind, announced=True)
        self._primary = primary
        self.is_left = False

    @property
    def is_former(self) -> bool:
        """As of ``Followed``."""
        return not self._primary.leads_to((self.host, self.port))

    async def connect(self) -> None:
        """As of ``Followed``."""
        if self.is_connected and self.is_former:
            await self.disconnect()
        await super().connect()  # type: ignore[no-untyped-call]

    async def _connect(self) -> None:
        self.is_left = False
        while True:
            address = self.host, self.port = await self._primary.find_async()
            try:
                await self._reach(address)
                break
            except (redis.ConnectionError, OSError):
                # Nothing was sent: another server may be the primary by now.
                if not self.is_former:
                    raise
        self._primary.opened(self._writer, address, partial(_in_loop, asyncio.get_running_loop(), _abort))

    async def _reach(self, address: Address) -> None:
        # A task, which the watch can end: a machine that hangs does not answer a connect either.
        opening = asyncio.ensure_future(super()._connect())  # type: ignore[no-untyped-call]
        opening.add_done_callback(_retrieved)
        self._primary.opened(opening, address, partial(_in_loop, asyncio.get_running_loop(), _cancel))
        try:
            await asyncio.wait([opening])
            if opening.cancelled():
                raise redis.ConnectionError("another server is the primary")
            opening.result()
        finally:
            opening.cancel()

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """As redis-py's."""
        try:
            return await super().read_response(*args, **options)
        except redis.ResponseError as error:
            self.is_left = self.is_left or leads_elsewhere(error)
            raise


class Watch:
    """The primary that one directory names, and the connections of this process that lead to it.

    Its thread runs while there are such connections. Safe for use by several threads.
    """

    def __init__(self, primary: Primary) -> None:
        self.primary = primary
        self._first: Address | None = None
        self._nodes: Sequence[Address] = ()
        # Reentrant: a signal handler may open a connection, too.
        self._lock = threading.RLock()
        self._known: NamedPrimary | None = None
        self._confirmed_at = 0.0
        self._replaced: _Replaced | None = None
        self._open: dict[weakref.ref[Any], tuple[Address, _Leave]] = {}
        self._former: list[_Former] = []
        """Connections to a former primary that answers, the oldest first."""
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

    def agreed(self, found: NamedPrimary, place: Address) -> Address:
        """The address that a place has just named, or the known one if that is of a later failover."""
        # The next question goes to the one that has answered: the others may be slow to fail.
        self.ask_first(place)
        return self._follow(found, only_newer=True).address

    def ask_first(self, place: Address) -> None:
        """Begin the next search for the primary at this place."""
        self._first = place

    @property
    def places(self) -> list[Address]:
        """The places to ask, in this order."""
        first = () if self._first is None else (self._first,)
        return list(dict.fromkeys((*first, *self._nodes, *self.primary.directory.places)))

    @contextmanager
    def listening(self, changed: Callable[[], object]) -> Iterator[None]:
        """Call ``changed`` after each failover, from any thread."""
        self._listeners.append(changed)
        try:
            yield
        finally:
            self._listeners.remove(changed)

    @property
    def known(self) -> NamedPrimary | None:
        """The primary that was named last."""
        return self._known

    @property
    def promotes(self) -> bool:
        """True while a replica gets the place of the known primary, whose writes are lost from now on."""
        replaced, known = self._replaced, self._known
        if replaced is None or known is None or known.address != replaced.address:
            return False
        return time.monotonic() < replaced.until

    def _follow(self, found: NamedPrimary, *, only_newer: bool = False) -> NamedPrimary:
        with self._lock:
            known = self._known
            is_trusted = time.monotonic() - self._confirmed_at < _TRUSTED_S
            if known is not None and only_newer and found.epoch < known.epoch and is_trusted:
                return known
            self._known = found
            if known is not None and known.address != found.address:
                self._replaced = None
            self._confirmed_at = time.monotonic()
            self._nodes = found.nodes
        if known is not None and known.address != found.address:
            self._leave_all_but(found.address)
        return found

    def _leave_all_but(self, current: Address) -> None:
        for line, (address, leave) in list(self._open.items()):
            if address != current:
                self._forget(line)
                if self.primary.directory.answers_moved:
                    # A command under way is refused, and not in doubt, unless this server hangs.
                    self._former.append(_Former(time.monotonic() + _ANSWERED_S, line, leave))
                else:
                    _leave(line, leave)
        for changed in [*self._listeners]:
            changed()

    def _leave_former(self) -> None:
        """Leave the former primaries that have had the time to answer."""
        while self._former and self._former[0].until < time.monotonic():
            former = self._former.pop(0)
            _leave(former.line, former.leave)

    def _forget(self, line: weakref.ref[Any]) -> None:
        self._open.pop(line, None)

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            name = f"pyworkers-{self.primary.directory.kind[1:]}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            # The system may have no thread left, and a program that ends starts none: the next connection
            # tries again.
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        asked: list[_Asked] = []
        try:
            while self._is_needed():
                self._wait(asked)
                self._leave_former()
                self._look(asked)
        finally:
            for one in asked:
                one.close()

    def _is_needed(self) -> bool:
        with self._lock:
            for line in [*self._open]:
                # An exception may refer to a closed one for long.
                if _is_closed(line()):
                    self._forget(line)
            # A connection that waits for the end of a promotion is not open.
            if not self._open and not self._former and not self.promotes:
                self._thread = None
            return self._thread is not None

    def _wait(self, asked: list[_Asked]) -> None:
        """Wait for the next look: it follows at once, at the same place, when a promotion is done there."""
        due = time.monotonic() + _LOOK_S
        while (left_s := due - time.monotonic()) > 0:
            for one in _announcing(asked, left_s):
                for channel, text in one.announcements():
                    if (former := self.primary.directory.replaced(channel, text)) is not None:
                        self._replaced = _Replaced(former, time.monotonic() + _PROMOTION_S)
                    else:
                        asked.remove(one)
                        asked.insert(0, one)
                        due = 0.0

    def _look(self, asked: list[_Asked]) -> None:
        """Ask one place; if it names another primary, follow the latest failover."""
        self._renew(asked)
        one = next((one for one in asked if one.skipped_until < time.monotonic()), None)
        if one is None:
            return
        # The next look asks the next place: this one may be cut off together with a former primary.
        asked.remove(one)
        asked.append(one)
        found, known = one.address(), self._known
        if found is None or known is None:
            return
        self.ask_first(one.place)
        if found == known.address:
            self._confirmed_at = time.monotonic()
            return
        named = one.named()
        if named is not None and named.epoch <= known.epoch:
            # Only then are all asked: one of them may hang, on the machine of the former primary.
            others = (other for each in asked[:-1] if (other := each.named()) is not None)
            named = max([named, *others])
        if named is not None:
            self._follow(named)

    def _renew(self, asked: list[_Asked]) -> None:
        """Ask the places of now."""
        # The nodes of a cluster may be in the URL by other names.
        places = self._nodes or self.primary.directory.places
        for one in [*asked]:
            if one.place not in places:
                asked.remove(one)
                one.close()
        known = {one.place for one in asked}
        asked += (_Asked(self.primary, place) for place in places if place not in known)


class _Former(NamedTuple):
    """A connection to a former primary, which may stay until a time, in monotonic seconds."""

    until: float
    line: weakref.ref[Any]
    leave: _Leave


class _Replaced(NamedTuple):
    """A primary whose place a replica is about to get, within a time in monotonic seconds."""

    address: Address
    until: float


class _Asked:
    """A place that the watch asks, unless it has not answered a short time ago. It also announces promotions,
    over another connection, unless it refuses that.
    """

    def __init__(self, primary: Primary, place: Address) -> None:
        self.place = place
        self.skipped_until = 0.0
        self._directory = primary.directory
        self._client = primary.client(place)
        self._announces = bool(self._directory.channels)
        self._line: Any = None

    def address(self) -> Address | None:
        """The address that it names, if it answers."""
        return self._answer(self._directory.address(self.place))

    def named(self) -> NamedPrimary | None:
        """The living primary that it names, if it answers."""
        found = self._answer(self._directory.named(self.place))
        return found if isinstance(found, NamedPrimary) else None

    @property
    def descriptor(self) -> int | None:
        """Of the connection for its announcements."""
        return None if self._line is None else self._line._sock.fileno()

    def announcements(self) -> list[tuple[str, str]]:
        """Channel and text of what it has announced since the last call."""
        found = []
        try:
            while self._line.can_read(0):
                match self._line.read_response():
                    case [b"message", bytes() as channel, bytes() as text]:
                        found.append((channel.decode(errors="replace"), text.decode(errors="replace")))
        except redis.ResponseError:
            # Its user may not subscribe.
            self._announces = False
            self._hang_up()
        except (redis.RedisError, OSError):
            self._hang_up()
        return found

    def close(self) -> None:
        """Close its connections."""
        self._hang_up()
        self._client.close()

    def _answer(self, question: Question[T | None]) -> T | None:
        try:
            found = _answer(self._client, question)
        except (redis.RedisError, OSError):
            self.skipped_until = time.monotonic() + _SKIPPED_S
            # It may hang, and may have been replaced on the way: it will be opened again.
            self._hang_up()
            return None
        if self._announces and self._line is None:
            self._subscribe()
        return found

    def _subscribe(self) -> None:
        pool = self._client.connection_pool
        # Not by the pool, which lends a limited number of them, also of those that were closed.
        self._line = pool.connection_class(**pool.connection_kwargs)
        try:
            self._line.connect()
            self._line.send_command("SUBSCRIBE", *self._directory.channels)
        except (redis.RedisError, OSError):
            self._hang_up()

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.disconnect()
            self._line = None


def _announcing(asked: Sequence[_Asked], timeout_s: float) -> list[_Asked]:
    """Those that have announced something, as soon as there is one, at the latest after a time."""
    waits, found = select.poll(), {}
    for one in asked:
        if (descriptor := one.descriptor) is not None:
            waits.register(descriptor, select.POLLIN)
            found[descriptor] = one
    return [found[descriptor] for descriptor, _ in waits.poll(timeout_s * 1000)]


def _answer(client: redis.Redis, question: Question[T]) -> T:
    """The result of a question. Raises redis-py's errors."""
    try:
        command = next(question)
        while True:
            try:
                with reading(command[0]):
                    reply = client.execute_command(*command)
            except redis.ResponseError as error:
                command = question.throw(error)
            else:
                with reading(command[0]):
                    command = question.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


async def _answer_async(client: redis.asyncio.Redis, question: Question[T]) -> T:
    try:
        command = next(question)
        while True:
            try:
                with reading(command[0]):
                    reply = await client.execute_command(*command)
            except redis.ResponseError as error:
                command = question.throw(error)
            else:
                with reading(command[0]):
                    command = question.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


class _Refusal(NamedTuple):
    """Why a place gives no address. ``place`` is empty if the text names it."""

    place: str
    text: str
    tls: bool = False

    @classmethod
    def of(cls, directory: Directory, place: Address, error: redis.RedisError) -> _Refusal:
        """The one that an error means."""
        code = code_of(error)
        if code == "TLS":
            return cls("", str(error), tls=True)
        return cls(spell(*place), directory.meanings.get(code) or cause_of(error))


def _not_found(refusals: Sequence[_Refusal], kind: type[redis.ConnectionError]) -> redis.ConnectionError:
    """The error, in one line; places that refuse alike are named together."""
    places: dict[str, list[str]] = {}
    for refusal in refusals:
        places.setdefault(refusal.text, []).append(refusal.place)
    texts = (f"{', '.join(found)}: {text}" if any(found) else text for text, found in places.items())
    return (TlsError if all(refusal.tls for refusal in refusals) else kind)("; ".join(texts))


# --- how a connection is left -----------------------------------------------------------------------------


def _leave(line: weakref.ref[Any], leave: _Leave) -> None:
    if (connection := line()) is not None:
        leave(connection)


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


def _watch_of(key: tuple[object, ...], primary: Primary) -> Watch:
    """The watch of this process for a primary; ``key`` tells it from the others."""
    pid = os.getpid()
    if (watch := _watches.get((pid, *key))) is None:
        for other in [*_watches]:
            if other[0] != pid:
                _watches.pop(other, None)
        # Of two threads, both get the watch of the first.
        watch = _watches.setdefault((pid, *key), Watch(primary))
    return watch
