"""Changes: reads the keys that other programs may change, and receives Redis' announcements of changes.

Runs in the master's event loop, on its own connection. Redis tracks the keys that this connection has
read, and announces their changes (https://redis.io/docs/latest/commands/client-tracking/), so that nothing is
sent while nothing changes. Where Redis, a proxy or an ACL refuses tracking, ``announced`` is False and the
caller has to poll. It never changes a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from redis.exceptions import ConnectionError, ResponseError

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError, StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Request, arun_one, one, script
from pyworkers.store.transport.connections import PUSH, translate
from pyworkers.store.transport.errors import Reaction, code_of, rule_for
from pyworkers.store.transport.link import Link
from pyworkers.store.transport.replies import ReplyReader, blobs, done, integer, maybe_blob
from pyworkers.store.transport.wire import Wire

# The only version of Redis' protocol with announcements.
_RESP3 = 3
T = TypeVar("T")
Announced = Callable[[Iterable[str] | None], None]


class ChangesStore:
    """The keys that a master follows.

    ``on_change`` is called when ``stale`` has grown: by the changed keys, or by all after a lost connection.
    """

    def __init__(self, config: RedisConfig, on_change: Callable[[], None]) -> None:
        self._config = config
        self._on_change = on_change
        self._link = self._best_link()
        self._kinds: dict[str, str] = {}
        self._listeners: list[Announced] = []
        self.stale: set[str] = set()
        """The keys that have changed since they were read, and those that were never read."""
        self.agreements = 0
        """Grows with each connection on which Redis agrees to announce changes, and with each other Redis.

        A refusal is of the time before that.
        """

    @property
    def announced(self) -> bool:
        """True if Redis announces the changes of the keys that were read."""
        return isinstance(self._link, _TrackingLink) and self._link.tracking

    @property
    def refused(self) -> bool:
        """True if Redis, a proxy, an ACL or this client refuses to announce changes."""
        return not isinstance(self._link, _TrackingLink) or self._link.refused

    def listen(self, announced: Announced) -> None:
        """Call this with the names of the keys that change after a read; with None if perhaps all have."""
        self._listeners.append(announced)

    def follow(self, kinds: Mapping[str, str]) -> None:
        """Read these keys from now on. ``kinds`` holds, by key, the kind of read in ``look.lua``."""
        self._kinds = dict(kinds)
        self.stale = set(kinds)

    async def read(self, names: Iterable[str]) -> dict[str, Any]:
        """The replies by key, a PyworkersError for a key that Redis refuses to read.

        Raises RedisUnavailableError and StoreError.
        """
        wanted = [name for name in names if name in self._kinds]
        # Before the read: the announcement of a later change, which may arrive with the reply, must be kept.
        self.stale.difference_update(wanted)
        try:
            replies = await self._look(wanted)
        except BaseException:
            # ``follow`` may have dropped some of them meanwhile.
            self.stale.update(self._kinds.keys() & wanted)
            raise
        return {name: _reply(reply) for name, reply in zip(wanted, replies, strict=True)}

    async def filled(self, names: Sequence[str]) -> Sequence[str]:
        """The queues among these that hold jobs. The changes of the others are announced to listeners.

        Raises RedisUnavailableError and StoreError.
        """
        number = await self.send(one("EXISTS", *names, read=integer))
        if number in (0, len(names)):
            return names if number else []
        kinds = ["length"] * len(names)
        lengths = await self.send(script("look", names, kinds, partial(_looked, kinds)))
        # The error of a key of another type counts as well: the part that takes jobs from it reports it.
        return [name for name, length in zip(names, lengths, strict=True) if length]

    async def ask(self) -> None:
        """Check the connection by a write that changes nothing, because a replica refuses only writes.

        Raises RedisUnavailableError.
        """
        # A refusal for another reason is an answer, too.
        with suppress(StoreError):
            await arun_one(self._link, one("ZREM", Keys(self._config.namespace).schedule, "", read=integer))

    async def connect_to(self, config: RedisConfig) -> None:
        """Use this Redis from now on, which has the same data."""
        self._config = config
        self.agreements += 1
        if isinstance(self._link, _TrackingLink):
            await self._link.connect_to(config)
        else:
            # The former Redis, or a proxy before it, refused the protocol.
            former, self._link = self._link, self._best_link()
            await former.aclose()

    async def close(self) -> None:
        """Close the connection."""
        await self._link.aclose()

    def _best_link(self) -> Link:
        # An old hiredis does not distinguish an announcement from a reply.
        return (
            Link(self._config) if PUSH is None else _TrackingLink(self._config, self._announce, self._agreed)
        )

    async def _look(self, names: list[str]) -> Any:
        kinds = [self._kinds[name] for name in names]
        return await self.send(script("look", names, kinds, partial(_looked, kinds)))

    async def send(self, request: Request[T]) -> T:
        """The reply to one command. The changes of the keys that it reads are announced to listeners.

        Raises RedisUnavailableError and StoreError.
        """
        try:
            return await arun_one(self._link, request)
        except PyworkersError as error:
            # Of either kind: the code of a refusal is the one in its text, for example UNKNOWN.
            if not isinstance(error.__cause__, _ProtocolRefusedError):
                raise
            await self._link.aclose()
            self._link = Link(self._config)
            return await arun_one(self._link, request)

    def _agreed(self) -> None:
        self.agreements += 1

    def _announce(self, names: Iterable[str] | None) -> None:
        """These keys have changed; None: perhaps all have."""
        for listener in self._listeners:
            listener(names)
        found = set(self._kinds) if names is None else self._kinds.keys() & set(names)
        if not found <= self.stale:
            self.stale |= found
            self._on_change()


class _ProtocolRefusedError(ConnectionError):
    """The server, or a proxy before it, does not support RESP3."""


class _TrackingLink(Link):
    """A link on which Redis announces the changes of the keys that were read."""

    # The node that imports the slot would announce nothing here.
    _asks = False

    def __init__(self, config: RedisConfig, announce: Announced, agreed: Callable[[], None]) -> None:
        super().__init__(config, protocol=_RESP3)
        self._announce = announce
        self._agreed = agreed
        self.tracking = False
        self.refused = False

    async def _connect(self) -> Wire:
        try:
            return await super()._connect()
        except (ResponseError, ConnectionError) as error:
            # At a Unix socket, redis-py wraps the refusal.
            if not isinstance(error, ResponseError) and not isinstance(error.__cause__, ResponseError):
                raise
            raise _ProtocolRefusedError(str(error)) from error

    async def _greet(self, wire: Wire) -> None:
        self.tracking, self.refused = False, True
        if wire.protocol != _RESP3:
            # The URL sets another version of the protocol, which has no announcements.
            return
        wire.listen(self._pushed, self._closed)
        try:
            await wire.send(("CLIENT", "TRACKING", "ON"), read=done)
        except ResponseError as error:
            if rule_for(code_of(error)).reaction is Reaction.RETRY:
                # A script runs. The next connection asks again.
                wire.close(ConnectionError("Redis does not answer yet"))
                raise
            # An ACL forbids it, or a service does not have it.
            return
        self.tracking, self.refused = True, False
        self._agreed()

    def _pushed(self, message: list[Any]) -> None:
        if message[:1] == [b"invalidate"]:
            # None after FLUSHALL and FLUSHDB.
            names = message[1]
            self._announce(None if names is None else [name.decode(errors="replace") for name in names])

    def _closed(self) -> None:
        if self.tracking:
            # A former connection may close after the next one is open, which announces nothing that was read
            # there.
            self.tracking = self._usable is not None
            self._announce(None)


def _first(reply: Any) -> Any:
    if blobs(reply):
        _, score = reply
        float(score)
    return reply


def _notes(reply: Any) -> Any:
    number, latest = reply
    return [integer(number), _unless_refused(blobs, latest)]


# The shape of the reply to each kind of read of look.lua.
_KINDS: dict[str, ReplyReader] = {
    "first": _first,
    "members": blobs,
    "notes": _notes,
    "text": maybe_blob,
    "length": integer,
    "active": maybe_blob,
}


def _looked(kinds: list[str], replies: Any) -> list[Any]:
    return [_unless_refused(_KINDS[kind], reply) for kind, reply in zip(kinds, replies, strict=True)]


def _unless_refused(read: ReplyReader, reply: Any) -> Any:
    return reply if isinstance(reply, Exception) else read(reply)


def _reply(reply: Any) -> Any:
    error = reply if isinstance(reply, Exception) else None
    if isinstance(reply, list):
        error = next((part for part in reply if isinstance(part, Exception)), None)
    return reply if error is None else translate(error)
