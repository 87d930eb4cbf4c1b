"""Calls: requests to Redis as values, built without a connection and run over any kind of connection.

A *request* is one round trip: commands, or one script, and the function that reads the replies. *Steps* are a
generator that yields requests, each built from the replies before it. *Pages* are a listing, read by
steps. The caller runs them blocking or in an event loop; this module never chooses the commands.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import redis
from redis.exceptions import NoScriptError, ResponseError

from pyworkers.errors import PyworkersError
from pyworkers.store import scripts
from pyworkers.store.scripts import Commands
from pyworkers.store.transport import replies
from pyworkers.store.transport.connections import errors_translated, node_of, node_of_async, primary_of
from pyworkers.store.transport.errors import code_of
from pyworkers.store.transport.redirects import Redirects, answers, put, refused
from pyworkers.store.transport.replies import ReplyReader, UnexpectedReplyError

# The scripts that read several keys, and write none.
_READERS = frozenset({"look", "browse/seek"})
# The code of a refusal because the keys of a command are on two nodes.
_DIVIDED = "TRYAGAIN"
# The commands that read several keys: the command for one key, and what makes one reply of its replies.
_KEY_BY_KEY: dict[str, tuple[str, Callable[[list[Any]], Any]]] = {
    "MGET": ("GET", list),
    "EXISTS": ("EXISTS", sum),
}
# What may be raised where a step is yielded.
_REFUSALS = (PyworkersError, ResponseError)
S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Command(NamedTuple):
    """The name and the arguments of a command; ``read`` converts the reply that redis-py returns.

    ``otherwise``: the name and the arguments to send if the server does not know the script of this command.
    """

    parts: tuple[Any, ...]
    read: ReplyReader | None = None
    otherwise: tuple[Any, ...] = ()


class Mode(Enum):
    """How several commands are sent in their round trip."""

    PIPELINE = "pipeline"
    """The first refused command fails the request; the commands after it have run nevertheless."""
    TRANSACTION = "transaction"
    """MULTI and EXEC: no command of another client runs in between."""
    LENIENT = "lenient"
    """The reply to a refused command is None: another program wrote the key, with another type."""


@dataclass(frozen=True, slots=True)
class Request(Generic[T_co]):
    """One round trip. In steps, ``yield from request`` returns ``read(replies)``."""

    commands: Sequence[Command]
    read: Callable[[list[Any]], T_co]
    mode: Mode = Mode.PIPELINE
    hurries: bool = False
    """True if a refusal because a slot of a cluster moves is raised at once: the caller has another way."""

    @property
    def single(self) -> Command | None:
        """The command, if it is the only one and ``mode`` changes nothing for it; else None."""
        return self.commands[0] if len(self.commands) == 1 and self.mode is Mode.PIPELINE else None

    def __iter__(self) -> Generator[Request[Any], Any, T_co]:
        value: T_co = yield self
        return value


Steps = Generator[Request[Any], Any, T]
Operation = Request[T] | Steps[T]


class Pages(ABC, Generic[T]):
    """A listing, read page by page while items are added and removed; it keeps its place between pages.

    After an error, items may be missing: begin a new listing.
    """

    ended = False
    """True once the last page has been read."""

    @abstractmethod
    def next_page(self) -> Steps[list[T]]:
        """Read the next items: perhaps none, although more follow."""

    def first(self) -> Steps[T | None]:
        """Read on until there is an item; None if there is none."""
        while not self.ended:
            for item in (yield from self.next_page()):
                return item
        return None

    def rest(self) -> Steps[list[T]]:
        """Read all remaining pages."""
        found: list[T] = []
        while not self.ended:
            found += yield from self.next_page()
        return found


class Pipelining(Commands, Protocol):
    """A connection that can also send several commands together: redis-py's client for asyncio."""

    def pipeline(self, transaction: bool) -> Any:
        """A pipeline of redis-py."""


def command(name: str, *arguments: Any, read: ReplyReader | None = None) -> Command:
    """A command. Text decoded with ``surrogateescape`` is sent as its original bytes."""
    return Command((name, *map(_encoded, arguments)), read)


def decoded(name: bytes) -> str:
    """A name as text; ``command`` sends it as the same bytes, also if they are not UTF-8."""
    return name.decode(errors="surrogateescape")


def one(name: str, *arguments: Any, read: Callable[[Any], T]) -> Request[T]:
    """The request of one command."""
    return Request([command(name, *arguments, read=read)], _only)


def every(commands: Sequence[Command], mode: Mode = Mode.PIPELINE) -> Request[list[Any]]:
    """The request of several commands: the list of their replies. Nothing is sent for an empty sequence."""
    return Request(commands, _all, mode)


def script(
    name: str,
    keys: Sequence[str | bytes],
    args: Sequence[Any],
    read: Callable[[Any], T],
    namespace: str | None = None,
) -> Request[T]:
    """The request of the script ``name``.lua.

    ``namespace`` is left out for a script that uses one key, or reads alone.
    """
    loaded = scripts.load(name)
    if namespace is not None:
        found = loaded.parts(namespace, keys, args)
    elif loaded.prefixed or (len(keys) > 1 and name not in _READERS):
        raise ValueError(f"{name}.lua writes several keys: pass their namespace")
    else:
        found = (len(keys), *keys, *args)
    parts = [*map(_encoded, found)]
    sent = Command(("EVALSHA", loaded.sha, *parts), read, ("EVAL", loaded.text, *parts))
    return Request([sent], _only)


def run(connection: redis.Redis, operation: Operation[T]) -> T:
    """Run a request or steps over a blocking client. Raises RedisUnavailableError and StoreError."""
    return drive(iter(operation), partial(_send, connection))


async def arun(connection: Pipelining, operation: Operation[T]) -> T:
    """As ``run``, in an event loop."""
    return await adrive(iter(operation), partial(_asend, connection))


def drive(steps: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """Perform each step, and send its result into the steps; an error is raised where the step is yielded."""
    try:
        step = next(steps)
        while True:
            try:
                result = perform(step)
            except _REFUSALS as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def adrive(steps: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """As ``drive``, in an event loop."""
    try:
        step = next(steps)
        while True:
            try:
                result = await perform(step)
            except _REFUSALS as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def arun_one(connection: Commands, request: Request[T]) -> T:
    """As ``arun``, over any connection, for a request of one command. Raises ValueError for several."""
    single = request.single
    if single is None:
        raise ValueError("several commands need a pipeline")
    with errors_translated():
        return request.read([await _aexecute(connection, single)])


def _send(connection: redis.Redis, request: Request[T]) -> T:
    with errors_translated():
        try:
            return request.read(drive(_sending(connection, request), partial(_perform, connection)))
        except UnexpectedReplyError:
            # The replies on the idle connections may be mixed up as well.
            connection.connection_pool.disconnect(inuse_connections=False)
            raise


@dataclass(frozen=True, slots=True)
class _Asked:
    """Commands for the node of a cluster that imports the slot."""

    node: tuple[str, int]
    request: Request[Any]

    @property
    def asking(self) -> Request[Any]:
        """The commands, each after ASKING; a script as its text."""
        sent = [Command(one.otherwise or one.parts, one.read) for one in self.request.commands]
        return every([part for one in sent for part in (command("ASKING"), one)])


_Sending = Generator[Request[Any] | _Asked | float, Any, list[Any]]


def _sending(connection: redis.Redis | Pipelining, request: Request[Any]) -> _Sending:
    """The replies to a request. Yields the request, and again what of it a node of a cluster has refused,
    after a pause in seconds.
    """
    replies: list[Any] = [None] * len(request.commands)
    places: Sequence[int] = range(len(replies))
    left: Request[Any] = request
    redirects: Redirects | None = None
    while True:
        try:
            found = yield left
        except ResponseError as error:
            found = [error] * len(places)
        put(found, places, replies)
        places = refused(replies, places)
        if not places:
            break
        redirects = redirects or Redirects(primary_of(connection))
        if request.mode is not Mode.TRANSACTION and (node := redirects.node_in(replies[places[0]])):
            asked = [place for place in places if redirects.node_in(replies[place]) == node]
            put((yield _Asked(node, _some(request, asked))), asked, replies)
            places = refused(replies, places)
        if request.mode is not Mode.TRANSACTION:
            places = yield from _key_by_key(connection, request, places, replies)
        if not places:
            break
        refusal = replies[places[0]]
        if request.hurries and code_of(refusal) == _DIVIDED:
            raise refusal
        yield redirects.pause_s(refusal)
        left = _some(request, places)
    return [_reply(request.mode, reply) for reply in replies]


def _key_by_key(
    connection: redis.Redis | Pipelining, request: Request[Any], places: Sequence[int], found: list[Any]
) -> Generator[Request[Any] | _Asked | float, Any, Sequence[int]]:
    """Read key by key what a node refuses because its keys are on two nodes. Returns the other places."""
    others = []
    for place in places:
        sent = request.commands[place]
        name, *names = sent.parts
        if code_of(found[place]) == _DIVIDED and name in _KEY_BY_KEY and len(names) > 1:
            single, together = _KEY_BY_KEY[name]
            # A key of another type has no value, as with MGET.
            reads = every([command(single, key) for key in names], Mode.LENIENT)
            found[place] = _read(sent, together((yield from _sending(connection, reads))))
        else:
            others.append(place)
    return others


def _some(request: Request[Any], places: Sequence[int]) -> Request[Any]:
    return replace(request, commands=[request.commands[place] for place in places])


def _reply(mode: Mode, reply: Any) -> Any:
    if not isinstance(reply, Exception):
        return reply
    if mode is Mode.LENIENT:
        return None
    raise reply


def _perform(connection: redis.Redis, step: Request[Any] | _Asked | float) -> list[Any]:
    if isinstance(step, Request):
        return _exchange(connection, step)
    if isinstance(step, _Asked):
        with node_of(connection, step.node) as node:
            return answers(_exchange(node, step.asking))
    time.sleep(step)
    return []


def _exchange(connection: redis.Redis, request: Request[Any]) -> list[Any]:
    """The replies, refusals among them as exceptions. Raises the one of a single command, or of EXEC."""
    if (single := request.single) is not None:
        return [_execute(connection, single)]
    if not request.commands:
        return []
    transaction = request.mode is Mode.TRANSACTION
    with connection.pipeline(transaction=transaction) as pipe:
        for sent in request.commands:
            pipe.execute_command(*sent.parts)
        found = pipe.execute(raise_on_error=transaction)
    return [
        reply if isinstance(reply, Exception) else _read(sent, reply)
        for sent, reply in zip(request.commands, found, strict=True)
    ]


def _execute(connection: redis.Redis, sent: Command) -> Any:
    try:
        reply = connection.execute_command(*sent.parts)
    except NoScriptError:
        reply = connection.execute_command(*sent.otherwise)
    return _read(sent, reply)


def _read(sent: Command, reply: Any) -> Any:
    return reply if sent.read is None else replies.read(sent.parts[0], sent.read, reply)


async def _asend(connection: Pipelining, request: Request[T]) -> T:
    with errors_translated():
        return request.read(await adrive(_sending(connection, request), partial(_aperform, connection)))


async def _aperform(connection: Pipelining, step: Request[Any] | _Asked | float) -> list[Any]:
    if isinstance(step, Request):
        return await _aexchange(connection, step)
    if isinstance(step, _Asked):
        async with node_of_async(connection, step.node) as node:
            return answers(await _aexchange(node, step.asking))
    await asyncio.sleep(step)
    return []


async def _aexchange(connection: Pipelining, request: Request[Any]) -> list[Any]:
    if (single := request.single) is not None:
        return [await _aexecute(connection, single)]
    if not request.commands:
        if request is PAUSE:
            await asyncio.sleep(0)
        return []
    transaction = request.mode is Mode.TRANSACTION
    async with connection.pipeline(transaction=transaction) as pipe:
        for sent in request.commands:
            pipe.execute_command(*sent.parts, read=sent.read)
        found: list[Any] = await pipe.execute(raise_on_error=transaction)
    return found


async def _aexecute(connection: Commands, sent: Command) -> Any:
    try:
        return await connection.execute_command(*sent.parts, read=sent.read)
    except NoScriptError:
        return await connection.execute_command(*sent.otherwise, read=sent.read)


def _encoded(part: Any) -> Any:
    return part.encode(errors="surrogateescape") if isinstance(part, str) else part


def _only(found: list[Any]) -> Any:
    return found[0]


def _all(found: list[Any]) -> list[Any]:
    return found


PAUSE: Request[list[Any]] = Request((), _all)
"""Sends nothing. In steps that compute for long, it lets the other tasks of an event loop run."""
