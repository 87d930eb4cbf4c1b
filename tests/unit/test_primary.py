"""Which of two answers about the primary is followed, and which connections are left then."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from pyworkers.store.transport import primary
from pyworkers.store.transport.cluster import Nodes
from pyworkers.store.transport.group import AsyncPlainPrimary, AsyncTlsPrimary, PlainPrimary, TlsPrimary
from pyworkers.store.transport.primary import Address, NamedPrimary, Primary, Watch
from pyworkers.store.transport.sentinel import Sentinels
from pyworkers.store.transport.tls import Tls, contexts_of
from tests.helpers.support import PATIENCE_S, async_wait_for, free_port, wait_for

PLACES = [("s", 1), ("s", 2)]
FORMER, LATER = ("h", 1), ("h", 2)
# States of a connection in Linux.
_ESTABLISHED, _SYN_SENT = 1, 2


@pytest.fixture
def watch() -> Watch:
    return Watch(Primary(Sentinels(PLACES, "main", {}), {}))


def test_the_later_failover_is_followed(watch: Watch) -> None:
    assert watch.agreed(NamedPrimary(7, FORMER), PLACES[0]) == FORMER
    assert watch.agreed(NamedPrimary(8, LATER), PLACES[1]) == LATER
    # A sentinel that is cut off together with the former primary.
    assert watch.agreed(NamedPrimary(7, FORMER), PLACES[0]) == LATER


def test_sentinels_that_were_set_up_again_are_believed(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    watch.agreed(NamedPrimary(8, LATER), PLACES[0])
    monkeypatch.setattr(primary, "_TRUSTED_S", -1.0)
    assert watch.agreed(NamedPrimary(1, FORMER), PLACES[0]) == FORMER


def test_the_place_that_answered_is_asked_first(watch: Watch) -> None:
    watch.agreed(NamedPrimary(7, FORMER), PLACES[1])
    assert watch.places == [PLACES[1], PLACES[0]]
    watch.agreed(NamedPrimary(7, FORMER, (("n", 1), ("n", 2))), ("n", 2))
    assert watch.places == [("n", 2), ("n", 1), *PLACES]


class Asked:
    """A place that answers, and notes how often the living primary was asked for."""

    skipped_until = 0.0

    def __init__(self, place: Address, answer: NamedPrimary) -> None:
        self.place = place
        self.answer = answer
        self.number = 0

    def address(self) -> Address:
        return self.answer.address

    def named(self) -> NamedPrimary:
        self.number += 1
        return self.answer


@pytest.mark.parametrize(
    ("answer", "of_the_other", "followed", "numbers"),
    [
        # The other one may hang, for as long as an answer may take.
        (NamedPrimary(8, LATER), NamedPrimary(9, ("h", 3)), LATER, [1, 0]),
        # It may be cut off together with a former primary, or the sentinels were set up again.
        (NamedPrimary(6, LATER), NamedPrimary(7, FORMER), FORMER, [1, 1]),
        (NamedPrimary(1, LATER), NamedPrimary(1, LATER), LATER, [1, 1]),
    ],
)
def test_all_places_are_asked_if_one_names_another_primary_without_a_later_failover(
    watch: Watch, answer: NamedPrimary, of_the_other: NamedPrimary, followed: Address, numbers: list[int]
) -> None:
    watch.agreed(NamedPrimary(7, FORMER), PLACES[1])
    asked: Any = [Asked(PLACES[0], answer), Asked(PLACES[1], of_the_other)]
    watch._look(asked)
    assert watch.known is not None
    assert watch.known.address == followed
    assert sorted(one.number for one in asked) == sorted(numbers)
    # New connections do not begin with one that hangs.
    assert watch.places[0] == PLACES[0]


PROMOTES, PROMOTED = Sentinels.channels


@pytest.mark.parametrize(
    ("channel", "text", "replaced"),
    [
        (PROMOTES, "slave h:2 h 2 @ main h 1", FORMER),
        (PROMOTES, "slave main:2 main 2 @ other h 1", None),
        (PROMOTED, "slave h:2 h 2 @ main h 1", None),
        (PROMOTES, "master main h 1", None),
        (PROMOTES, "slave h:2 h 2 @ main h one", None),
        (PROMOTES, "", None),
    ],
)
def test_the_announcement_of_a_promotion(channel: str, text: str, replaced: Address | None) -> None:
    assert Sentinels(PLACES, "main", {}).replaced(channel, text) == replaced


class Announcing(Asked):
    """A place that has announced something."""

    def __init__(self, channel: str) -> None:
        super().__init__(PLACES[1], NamedPrimary(7, FORMER))
        self._announced, sender = socket.socketpair()
        with sender:
            sender.send(b"announced")
        self.descriptor = self._announced.fileno()
        self._channel = channel

    def announcements(self) -> list[tuple[str, str]]:
        self._announced.close()
        self.descriptor = None  # type: ignore[assignment]
        return [(self._channel, "slave h:2 h 2 @ main h 1")]


def test_no_command_begins_at_a_primary_that_is_about_to_be_replaced(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Primary, "watch", watch)
    watch.agreed(NamedPrimary(7, FORMER), PLACES[0])
    watch._wait([Announcing(PROMOTES)])  # type: ignore[list-item]
    assert not watch.primary.leads_to(FORMER)
    # The next connection waits for the new one, which another thread finds out.
    watch.agreed(NamedPrimary(8, LATER), PLACES[0])
    assert watch.primary.leads_to(LATER)
    watch.agreed(NamedPrimary(9, FORMER), PLACES[0])
    assert watch.primary.leads_to(FORMER)


def test_a_promotion_that_fails_is_not_waited_for(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Primary, "watch", watch)
    monkeypatch.setattr(primary, "_PROMOTION_S", -1.0)
    watch.agreed(NamedPrimary(7, FORMER), PLACES[0])
    watch._wait([Announcing(PROMOTES)])  # type: ignore[list-item]
    assert watch.primary.leads_to(FORMER)


def test_the_place_of_a_promotion_that_is_done_is_asked_at_once(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(primary, "_LOOK_S", 600.0)
    asked: Any = [Asked(PLACES[0], NamedPrimary(7, FORMER)), Announcing(PROMOTED)]
    asked[0].descriptor = None
    watch._wait(asked)
    assert [one.place for one in asked] == PLACES[::-1]


def test_a_place_that_takes_no_subscription_names_the_primary(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(primary, "_answer", lambda _client, _question: FORMER)
    asked = primary._Asked(watch.primary, ("127.0.0.1", free_port()))
    assert asked.address() == FORMER
    assert (asked.skipped_until, asked.descriptor) == (0.0, None)
    asked.close()


@pytest.mark.parametrize(("of_cluster", "answered_s"), [(True, 60.0), (True, -1.0), (False, 60.0)])
def test_a_former_primary_that_answers_has_a_time_for_it(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, of_cluster: bool, answered_s: float
) -> None:
    """A node of a cluster, which may pause before it refuses what it got. A primary of sentinels executes."""
    monkeypatch.setattr(Watch, "_start", lambda _: None)
    monkeypatch.setattr(primary, "_ANSWERED_S", answered_s)
    if of_cluster:
        watch = Watch(Primary(Nodes(PLACES, "{app}:pyworkers:slot"), {}))
    connection, other = Asked(PLACES[0], NamedPrimary(7, FORMER)), Asked(PLACES[0], NamedPrimary(8, LATER))
    left: list[object] = []
    watch.agreed(NamedPrimary(7, FORMER), PLACES[0])
    watch.opened(connection, FORMER, left.append)
    watch.agreed(NamedPrimary(8, LATER), PLACES[0])
    watch.opened(other, LATER, left.append)
    watch._leave_former()
    assert left == ([] if of_cluster and answered_s > 0 else [connection])


@contextlib.contextmanager
def hanging(*, accepts: bool) -> Iterator[tuple[str, int]]:
    """The address of a machine that hangs: it answers nothing, or not even a connect."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=8 if accepts else 0))
        for _ in range(0 if accepts else 3):
            full = stack.enter_context(socket.socket())
            full.setblocking(False)
            full.connect_ex(server.getsockname())
        yield server.getsockname()


def waits(opened: Any, *, secure: bool) -> bool:
    """True for a socket with TLS that is connected, or for one without TLS that is being connected."""
    if opened is None or opened.fileno() < 0 or isinstance(opened, ssl.SSLSocket) != secure:
        return False
    state = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return bool(state == (_ESTABLISHED if secure else _SYN_SENT))


@pytest.mark.parametrize("secure", [False, True], ids=["connect", "handshake"])
def test_a_connection_that_is_opened_to_a_former_primary_leads_to_the_later_one(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    """Long before its time limit. The later one is absent here, and refuses."""
    monkeypatch.setattr(Primary, "watch", watch)
    # No thread of its own.
    monkeypatch.setattr(Watch, "_start", lambda _: None)
    monkeypatch.setattr(Primary, "find", lambda _: watch.known and watch.known.address)
    raised: list[str] = []

    def connect(connection: Any) -> None:
        try:
            connection.connect()
        except redis.ConnectionError as error:
            raised.append(str(error))

    later = "127.0.0.1", free_port()
    with hanging(accepts=secure) as address:
        watch.agreed(NamedPrimary(1, address), PLACES[0])
        options: dict[str, Any] = {"primary": watch.primary, "socket_connect_timeout": 600.0, "protocol": 2}
        kind: Any = TlsPrimary if secure else PlainPrimary
        connection = kind(**options, **({"tls": contexts_of(Tls())} if secure else {}))
        thread = threading.Thread(target=connect, args=[connection], daemon=True)
        thread.start()
        wait_for(lambda: any(waits(one(), secure=secure) for one in watch._open))
        watch.agreed(NamedPrimary(2, later), PLACES[0])
        thread.join(20)
        assert raised == [f"Error 111 connecting to 127.0.0.1:{later[1]}. Connection refused."]


@pytest.mark.parametrize("secure", [False, True], ids=["connect", "handshake"])
async def test_a_connection_of_a_loop_leads_to_the_later_primary(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    """As above."""
    monkeypatch.setattr(Primary, "watch", watch)
    monkeypatch.setattr(Watch, "_start", lambda _: None)

    async def find(_: Primary) -> Address:
        assert watch.known is not None
        return watch.known.address

    monkeypatch.setattr(Primary, "find_async", find)
    later = "127.0.0.1", free_port()
    with hanging(accepts=secure) as address:
        watch.agreed(NamedPrimary(1, address), PLACES[0])
        options: dict[str, Any] = {"primary": watch.primary, "socket_connect_timeout": 600.0, "protocol": 2}
        kind: Any = AsyncTlsPrimary if secure else AsyncPlainPrimary
        connection = kind(**options, **({"tls": contexts_of(Tls())} if secure else {}))
        connecting = asyncio.create_task(connection.connect())
        await async_wait_for(lambda: bool(watch._open))
        watch.agreed(NamedPrimary(2, later), PLACES[0])
        with pytest.raises(redis.ConnectionError, match=f"Error 111 connecting to 127.0.0.1:{later[1]}. "):
            await asyncio.wait_for(connecting, PATIENCE_S)
