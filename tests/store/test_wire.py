"""Wires: replies, losses and interruptions, forks and threads, and the ways to a server."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import ssl
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import hiredis
import pytest
import redis
import trustme

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import JobTimeout
from pyworkers.store.transport.blocking import Wires
from pyworkers.store.transport.connections import connect, connect_async, translate
from pyworkers.store.transport.wire import AsyncWires
from tests.helpers.processes import close_garbage, own_descriptors
from tests.helpers.support import PATIENCE_S, async_wait_for, free_port, running_server, wait_for

SILENCE_S = 2.5
"""A time-out that also counts for the greeting: it is longer than the machine stalls."""


def opened(url: str, **options: Any) -> closing[Wires]:
    return closing(Wires(connect(RedisConfig(url=url, **options))))


def ask(wires: Wires, *commands: tuple[Any, ...]) -> list[Any]:
    return wires.exchange(b"".join(map(hiredis.pack_command, commands)), len(commands))


def client_id(wires: Wires) -> int:
    [found] = ask(wires, ("CLIENT", "ID"))
    return int(found)


@contextmanager
def a_server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server whose connections ``answer`` serves, each in a thread; its address as HOST:PORT."""

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            answer(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


class Script:
    """A server that knows redis-py's greetings, and answers each other command with its pieces of text."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self.connections = self.ended = 0
        self.commands: list[bytes] = []

    def __call__(self, connection: socket.socket) -> None:
        self.connections += 1
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = hiredis.Reader()
        while data := connection.recv(65536):
            received.feed(data)
            while (command := received.gets()) is not False:
                for piece in self._answers(command):
                    connection.sendall(piece)
        self.ended += 1

    def _answers(self, command: Sequence[bytes]) -> Sequence[bytes]:
        greeting = {b"CLIENT": b"+OK\r\n", b"HELLO": b"%1\r\n+proto\r\n:3\r\n"}.get(command[0])
        if greeting is not None:
            return [greeting]
        self.commands.append(command[0])
        return self._pieces


# --- replies ----------------------------------------------------------------------------------------------


def test_replies_come_in_order_with_refusals_among_them(redis_url: str) -> None:
    with opened(redis_url) as wires:
        one, two, three = ask(wires, ("ECHO", "1"), ("NOSUCH",), ("ECHO", b"\xff" * 1_000_000))
        assert (one, three) == (b"1", b"\xff" * 1_000_000)
        assert isinstance(two, redis.ResponseError)
        before = client_id(wires)
        assert client_id(wires) == before


def test_refusals_inside_of_a_transaction_are_of_redis_pys_classes(redis_url: str, namespace: str) -> None:
    key = f"{namespace}text"
    with opened(redis_url) as wires:
        *_, executed = ask(wires, ("MULTI",), ("SET", key, 1), ("LPUSH", key, 1), ("EXEC",))
        assert executed[0] == b"OK"
        assert translate(executed[1]).code == "WRONGTYPE"


def test_a_reply_in_pieces() -> None:
    text = b"*2\r\n:1\r\n$5\r\nhello\r\n"
    script = Script(*(text[place : place + 1] for place in range(len(text))))
    with a_server(script) as address, opened(f"redis://{address}/0") as wires:
        assert ask(wires, ("ONE",), ("TWO",)) == [[1, b"hello"], [1, b"hello"]]
        assert script.connections == 1


def test_what_a_server_says_unasked_in_the_third_protocol_is_no_reply() -> None:
    script = Script(b">2\r\n+invalidate\r\n_\r\n", b"+PONG\r\n")
    with a_server(script) as address, opened(f"redis://{address}/0?protocol=3") as wires:
        assert ask(wires, ("PING",), ("PING",)) == [b"PONG", b"PONG"]


def test_a_login_that_is_interrupted_leaves_no_connection_to_another_database(
    one_redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send: Callable[..., None] = redis.connection.AbstractConnection.send_command
    interruptions: list[JobTimeout] = []

    def interrupted(connection: object, *command: Any, **options: Any) -> None:
        if command[0] == "SELECT" and interruptions:
            raise interruptions.pop()
        send(connection, *command, **options)

    monkeypatch.setattr(redis.connection.AbstractConnection, "send_command", interrupted)
    url = f"{one_redis_url.rpartition('/')[0]}/5"
    with opened(url) as wires, connect(RedisConfig(url=url)) as client:
        databases: list[Callable[[], Any]] = [
            lambda: ask(wires, ("CLIENT", "INFO"))[0].partition(b" db=")[2][:1],
            lambda: client.client_info()["db"],
        ]
        for database in databases:
            interruptions.append(JobTimeout("the job ran too long"))
            with pytest.raises(JobTimeout):
                database()
            assert int(database()) == 5


# --- losses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [(b"hello\r\n", "PROTOCOL"), (b"+OK\r\n+OK\r\n", "UNREACHABLE"), (b"+OK\r\n$5\r\nhe", "UNREACHABLE")],
    ids=["no reply", "one too many", "a part too many"],
)
def test_a_reply_without_a_request_ends_the_connection(text: bytes, code: str) -> None:
    script = Script(text)
    with a_server(script) as address, opened(f"redis://{address}/0") as wires:
        for connections in (1, 2):
            with pytest.raises((redis.RedisError, OSError)) as caught:
                ask(wires, ("PING",))
            assert translate(caught.value).code == code
            assert script.connections == connections


def test_silence_ends_the_connection() -> None:
    script = Script()
    with a_server(script) as address, opened(f"redis://{address}/0?socket_timeout={SILENCE_S}") as wires:
        for connections in (1, 2):
            with pytest.raises((redis.RedisError, OSError)) as caught:
                ask(wires, ("PING",))
            assert translate(caught.value).code == "TIMEOUT"
            assert script.commands == [b"PING"] * connections
            assert script.connections == connections


def test_an_idle_connection_that_was_closed_is_replaced(redis_url: str) -> None:
    with opened(redis_url) as wires, redis.Redis.from_url(redis_url) as killer:
        for _ in range(3):
            assert killer.client_kill_filter(_id=str(client_id(wires))) == 1
            assert ask(wires, ("ECHO", "1")) == [b"1"]


@pytest.fixture
def named(one_redis_url: str, namespace: str) -> Iterator[tuple[str, Callable[[], set[str]]]]:
    """A URL that names its connections, and what says which of them Redis sees."""
    name = namespace.rstrip(":")
    with redis.Redis.from_url(one_redis_url) as server:

        def ids() -> set[str]:
            return {client["id"] for client in server.client_list() if client["name"] == name}

        yield f"{one_redis_url}?client_name={name}&max_connections=1", ids


def test_one_connection_takes_the_place_of_another(
    one_redis_url: str, named: tuple[str, Callable[[], set[str]]]
) -> None:
    url, ids = named
    with opened(url) as wires, redis.Redis.from_url(one_redis_url) as killer:
        for _ in range(5):
            assert {str(client_id(wires))} == ids()
            killer.client_kill_filter(_id=str(client_id(wires)))
            wait_for(lambda: not ids())


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "dropped"])
def test_nothing_is_left_when_the_owner_goes(named: tuple[str, Callable[[], set[str]]], closed: bool) -> None:
    url, ids = named
    wires = Wires(connect(RedisConfig(url=url)))
    assert {str(client_id(wires))} == ids()
    if closed:
        wires.close()
    else:
        del wires
    wait_for(lambda: not ids())


def a_client(url: str) -> object:
    client = connect(RedisConfig(url=url))
    client.ping()
    return client


def wires_in_use(url: str) -> object:
    wires = Wires(connect(RedisConfig(url=url)))
    client_id(wires)
    return wires


@pytest.mark.parametrize("open_owner", [a_client, wires_in_use])
def test_an_owner_in_a_circle_of_garbage_closes_its_socket_first(
    one_redis_url: str, open_owner: Callable[[str], object]
) -> None:
    close_garbage()
    # A collection of garbage sorts what it finds by what holds it, and finalizes garbage in this order.
    sockets: list[object] = []
    circle: list[object] = [open_owner(one_redis_url)]
    circle.append(circle)
    sockets += [found for found in gc.get_objects() if isinstance(found, socket.socket)]
    gc.collect()
    sockets.clear()
    del circle
    with warnings.catch_warnings(record=True) as unclosed:
        warnings.simplefilter("always")
        gc.collect()
    assert not unclosed


class Interrupted(BaseException):
    """As KeyboardInterrupt, or JobTimeout in a job that enqueues."""


def test_an_interrupted_exchange_takes_its_connection_along() -> None:
    script = Script()

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    def interrupt_me() -> None:
        wait_for(lambda: script.commands)
        signal.pthread_kill(me, signal.SIGUSR1)

    me = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with a_server(script) as address, opened(f"redis://{address}/0?socket_timeout=30") as wires:
            for connections in (1, 2):
                script.commands.clear()
                threading.Thread(target=interrupt_me).start()
                with pytest.raises(Interrupted):
                    ask(wires, ("PING",))
                assert (script.commands, script.connections) == ([b"PING"], connections)
                wait_for(lambda expected=connections: script.ended == expected)  # type: ignore[misc]
    finally:
        signal.signal(signal.SIGUSR1, before)


# --- threads and forks ------------------------------------------------------------------------------------


def test_threads_never_get_the_reply_of_another(redis_url: str) -> None:
    wrong: list[Any] = []

    def work(name: bytes) -> None:
        for number in range(200):
            text = b"%b-%d" % (name, number)
            if ask(wires, ("ECHO", text)) != [text]:
                wrong.append(text)

    with opened(redis_url) as wires:
        threads = [threading.Thread(target=work, args=(b"%d" % number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def in_child(body: Callable[[], bool]) -> int:
    """Run ``body`` in a forked process; its pid. The exit status is 0 if that was true."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if body() else 2
        finally:
            os._exit(status)
    return pid


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_process_leaves_the_connection_to_its_parent(redis_url: str) -> None:
    with opened(redis_url) as wires:
        before = client_id(wires)

        def child() -> bool:
            close_garbage()
            descriptors = len(own_descriptors())
            others = [client_id(wires), client_id(wires)]
            assert others[0] == others[1] != before
            # Redis would not see the end of the parent if the inherited one were still open.
            assert len(own_descriptors()) == descriptors
            wires.close()
            return True

        assert status_of(in_child(child)) == 0
        assert client_id(wires) == before


def test_a_fork_while_threads_exchange(redis_url: str) -> None:
    """The child can exchange at once, while other threads of the parent exchange, and so can the parent."""

    def work() -> None:
        while not stop.is_set():
            assert ask(wires, ("ECHO", "parent")) == [b"parent"]
            done.append(1)

    stop, done = threading.Event(), list[int]()
    with opened(redis_url) as wires:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                reached = len(done) + 10
                wait_for(lambda reached=reached: len(done) > reached)  # type: ignore[misc]
                assert status_of(in_child(lambda: ask(wires, ("ECHO", "child")) == [b"child"])) == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_a_fork_in_the_middle_of_an_exchange_shares_no_connection(redis_url: str, namespace: str) -> None:
    """A signal handler may fork, and both processes come back from it."""
    parent = os.getpid()
    pids: list[int] = []

    def fork(number: int, frame: FrameType | None) -> None:
        pids.append(os.fork())
        if pids[-1] == 0:
            # Only the parent reads the reply to what was under way.
            try:
                ids = {client_id(wires) for _ in range(3)}
                os._exit(0 if len(ids) == 1 and before not in ids else 2)
            finally:
                os._exit(1)

    with opened(redis_url) as wires, redis.Redis.from_url(redis_url) as server:
        before = client_id(wires)
        previous = signal.signal(signal.SIGUSR1, fork)

        def poke() -> None:
            wait_for(lambda: any(client["cmd"] == "blpop" for client in server.client_list()))
            os.kill(parent, signal.SIGUSR1)
            wait_for(lambda: pids)
            server.rpush(f"{namespace}list", "end")

        poker = threading.Thread(target=poke)
        try:
            poker.start()
            assert ask(wires, ("BLPOP", f"{namespace}list", 10)) == [[f"{namespace}list".encode(), b"end"]]
        finally:
            poker.join()
            signal.signal(signal.SIGUSR1, previous)
        assert [status_of(pid) for pid in pids] == [0]
        assert client_id(wires) == before


# --- ways to a server -------------------------------------------------------------------------------------


def test_an_absent_server_is_an_error(redis_url: str) -> None:
    with opened("redis://127.0.0.1:1/0") as wires, pytest.raises(redis.ConnectionError):
        ask(wires, ("PING",))


def test_login_database_and_name_are_those_of_the_url(one_redis_url: str) -> None:
    address = urlsplit(one_redis_url).netloc
    with opened(one_redis_url) as admin:
        ask(admin, ("ACL", "SETUSER", "wirer", "on", ">secret", "+@all", "~*"))
        try:
            with opened(f"redis://wirer:secret@{address}/3?client_name=me") as wires:
                [who, about] = ask(wires, ("ACL", "WHOAMI"), ("CLIENT", "INFO"))
                assert who == b"wirer"
                assert b" db=3 " in about
                assert b" name=me " in about
            with (
                opened(f"redis://wirer:wrong@{address}/3") as wires,
                pytest.raises(redis.AuthenticationError),
            ):
                ask(wires, ("PING",))
        finally:
            ask(admin, ("ACL", "DELUSER", "wirer"))


@contextmanager
def a_tls_server(url: str, folder: Path) -> Iterator[tuple[RedisConfig, threading.Event]]:
    """How to reach the server of ``url`` by TLS; the event is set when it has closed such a connection."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    upstream, gone = urlsplit(url), threading.Event()

    def pass_on(connection: socket.socket) -> None:
        with (
            context.wrap_socket(connection, server_side=True) as theirs,
            socket.create_connection((upstream.hostname, upstream.port)) as ours,
        ):
            back = threading.Thread(target=_copy, args=(ours, theirs))
            back.start()
            _copy(theirs, ours)
            back.join()
        gone.set()

    with a_server(pass_on) as address:
        # 51 handshakes at once, both ends in this process.
        patience = f"socket_connect_timeout={PATIENCE_S:g}&socket_timeout={PATIENCE_S:g}"
        yield RedisConfig(url=f"rediss://{address}/0?{patience}", ca_file=str(folder / "ca.pem")), gone


def test_tls(one_redis_url: str, tmp_path: Path) -> None:
    with (
        a_tls_server(one_redis_url, tmp_path) as (config, gone),
        closing(Wires(connect(config))) as wires,
        redis.Redis.from_url(one_redis_url) as killer,
    ):
        text = b"x" * 300_000
        assert ask(wires, ("ECHO", text), ("ECHO", "1")) == [text, b"1"]
        before = client_id(wires)
        assert client_id(wires) == before
        killer.client_kill_filter(_id=str(before))
        assert gone.wait(PATIENCE_S)
        assert client_id(wires) != before


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class Switch:
    """A sentinel, and the two servers of which it names one."""

    url: str
    former: int
    other: int

    def over(self) -> None:
        """Name the other server: the former one still takes commands, as in a planned failover."""
        address = urlsplit(self.url).netloc.partition(",")[2]
        with redis.Redis.from_url(f"redis://{address}") as sentinel:
            sentinel.execute_command("SENTINEL REMOVE", "main")
            sentinel.execute_command("SENTINEL MONITOR", "main", "127.0.0.1", self.other, 1)


@pytest.fixture
def switch(tmp_path: Path, valkey_binary: str, sentinel_url: str) -> Iterator[Switch]:
    other = free_port()
    (tmp_path / "other").mkdir()
    with running_server(valkey_binary, tmp_path / "other", other):
        with opened(sentinel_url) as wires:
            former = port_of(wires)
        yield Switch(sentinel_url, former, other)


PORT = ("CONFIG", "GET", "port")


def port_of(wires: Wires) -> int:
    [[_, port]] = ask(wires, PORT)
    return int(port)


def port_of_client(client: redis.Redis) -> int:
    return int(str(client.config_get("port")["port"]))


def watchers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "pyworkers-sentinel"]


def test_connections_to_a_former_primary_are_left(switch: Switch) -> None:
    """Idle ones and one that waits for a reply, of each kind of client, in this process and a forked one."""
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(redis.ConnectionError):
            ask(wires, ("BLPOP", "list", 60))
        ended.set()

    def child() -> bool:
        assert port_of(wires) == switch.former
        os.write(written, b".")
        wait_for(lambda: port_of(wires) == switch.other)
        return True

    read, written = os.pipe()
    config = RedisConfig(url=switch.url)
    with opened(switch.url) as wires, closing(connect(config)) as client:
        assert port_of_client(client) == port_of(wires) == switch.former
        pid = in_child(child)
        assert os.read(read, 1) == b"."
        waiting = threading.Thread(target=wait)
        waiting.start()
        with redis.Redis(port=switch.former) as former:
            wait_for(lambda: any(client["cmd"] == "blpop" for client in former.client_list()))
            switch.over()
            waiting.join()
            assert ended.is_set()
            assert port_of(wires) == port_of_client(client) == switch.other
            assert status_of(pid) == 0
            wait_for(lambda: len(former.client_list()) == 1, message="all have left")
    wait_for(lambda: not watchers(), message="nothing is left to watch")


def test_a_connection_without_sentinels_is_not_watched(redis_url: str) -> None:
    wait_for(lambda: not watchers(), message="those of earlier tests have ended")
    with opened(redis_url) as wires:
        ask(wires, ("PING",))
        assert watchers() == []


# --- event loops ------------------------------------------------------------------------------------------

Ask = Callable[..., Coroutine[Any, Any, list[Any]]]

in_each_loop = pytest.mark.usefixtures("new_loop")


@asynccontextmanager
async def asking(config: RedisConfig) -> AsyncIterator[Ask]:
    """The exchange of wires in an event loop, which are closed after the block."""
    async with aclosing(AsyncWires(connect_async(config))) as wires:

        async def ask(*commands: tuple[Any, ...]) -> list[Any]:
            packed = b"".join(map(hiredis.pack_command, commands))
            return await wires.exchange(packed, len(commands))

        yield ask


@in_each_loop
async def test_an_event_loop_leaves_a_former_primary(switch: Switch) -> None:
    config = RedisConfig(url=switch.url)
    async with asking(config) as ask, connect_async(config) as client:
        assert int(str((await client.config_get("port"))["port"])) == switch.former
        waiting = asyncio.create_task(ask(("BLPOP", "list", "60")))
        with redis.Redis(port=switch.former) as former:
            await async_wait_for(lambda: any(found["cmd"] == "blpop" for found in former.client_list()))
            switch.over()
            with pytest.raises(redis.ConnectionError):
                await waiting
            [[_, port]] = await ask(PORT)
            assert int(port) == int(str((await client.config_get("port"))["port"])) == switch.other
            await async_wait_for(lambda: len(former.client_list()) == 1, message="all have left")


async def _exchanges(config: RedisConfig) -> None:
    async with asking(config) as ask:
        text = b"\xff" * 1_000_000
        one, two, three = await ask(("ECHO", "1"), ("NOSUCH",), ("ECHO", text))
        assert (one, three) == (b"1", text)
        assert isinstance(two, redis.ResponseError)
        [before] = await ask(("CLIENT", "ID"))
        assert await ask(("CLIENT", "ID")) == [before]
        texts = [b"%d" % number for number in range(50)]
        assert await asyncio.gather(*(ask(("ECHO", text)) for text in texts)) == [[text] for text in texts]


@in_each_loop
async def test_exchanges_in_a_loop(one_redis_url: str) -> None:
    await _exchanges(RedisConfig(url=one_redis_url))


@in_each_loop
async def test_exchanges_in_a_loop_by_tls(one_redis_url: str, tmp_path: Path) -> None:
    with a_tls_server(one_redis_url, tmp_path) as (config, _):
        await _exchanges(config)


@in_each_loop
@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"hello\r\n", "PROTOCOL"),
        (b"+OK\r\n+OK\r\n", "UNREACHABLE"),
        (b"+OK\r\n$5\r\nhe", "UNREACHABLE"),
        (b"", "TIMEOUT"),
    ],
    ids=["no reply", "one too many", "a part too many", "silence"],
)
async def test_what_ends_a_connection_in_a_loop(text: bytes, code: str) -> None:
    script = Script(text)
    timeout = PATIENCE_S if text else SILENCE_S
    with a_server(script) as address:
        async with asking(RedisConfig(url=f"redis://{address}/0?socket_timeout={timeout}")) as ask:
            for connections in (1, 2):
                with pytest.raises((redis.RedisError, OSError)) as caught:
                    await ask(("PING",))
                assert translate(caught.value).code == code
                assert (script.commands, script.connections) == ([b"PING"] * connections, connections)


@in_each_loop
async def test_a_cancelled_exchange_costs_no_other_its_reply(one_redis_url: str, namespace: str) -> None:
    async with asking(RedisConfig(url=one_redis_url)) as ask:
        [before] = await ask(("CLIENT", "ID"))
        with redis.Redis.from_url(one_redis_url) as server:
            cancelled = asyncio.create_task(ask(("BLPOP", f"{namespace}list", 10)))
            await async_wait_for(lambda: any(client["cmd"] == "blpop" for client in server.client_list()))
            behind = [asyncio.create_task(ask(("ECHO", b"%d" % n))) for n in range(9)]
            await asyncio.sleep(0)
            for task in (cancelled, *behind[::3]):
                task.cancel()
            await asyncio.wait([cancelled, *behind[::3]])
            server.rpush(f"{namespace}list", "end")
        found = await asyncio.gather(*behind, return_exceptions=True)
        assert [reply for reply in found if isinstance(reply, list)] == [
            [b"%d" % n] for n in range(9) if n % 3
        ]
        assert await ask(("CLIENT", "ID")) == [before]
