"""Link: its replies, its losses, and the ways to a server, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hiredis
import pytest
import redis
import redis.asyncio
import trustme

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import RedisUnavailableError
from pyworkers.store.transport.connections import errors_translated
from pyworkers.store.transport.link import Link
from pyworkers.store.transport.wire import time_limit
from tests.helpers.support import async_wait_for, stretched, wait_for

pytestmark = pytest.mark.usefixtures("new_loop")

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def linked(url: str, timeout_s: float = 10.0, **options: Any) -> AsyncIterator[Link]:
    link = Link(RedisConfig(url=url, **options), timeout_s)
    try:
        yield link
    finally:
        await link.aclose()


@contextlib.asynccontextmanager
async def a_server(answer: Answer, **options: Any) -> AsyncIterator[str]:
    """A server whose connections ``answer`` serves; its address as HOST:PORT."""
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            await answer(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.wait(serving)


# CLIENT SETINFO and CLIENT ID.
GREETINGS = {b"SETINFO": b"+OK\r\n", b"ID": b":7\r\n"}


class Script:
    """A server that knows redis-py's greetings, and says the next line of its text to any other command."""

    def __init__(self, *lines: bytes) -> None:
        self._lines = lines
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        commands, lines = hiredis.Reader(), iter(self._lines)
        while data := await reader.read(65536):
            commands.feed(data)
            while (command := commands.gets()) is not False:
                greeting = GREETINGS.get(command[-1 if len(command) < 3 else 1])
                writer.write(greeting or next(lines))
        writer.close()


async def test_commands_that_are_sent_together_get_their_own_replies(redis_url: str) -> None:
    async with linked(redis_url) as link:
        texts = [b"%d" % number * number for number in range(200)]
        assert await asyncio.gather(*(link.execute_command("ECHO", text) for text in texts)) == texts


async def test_a_reply_of_megabytes_comes_whole(redis_url: str) -> None:
    async with linked(redis_url) as link:
        text = b"x" * 5_000_000
        assert await link.execute_command("ECHO", text) == text


async def test_an_error_reply_leaves_the_connection_as_it_is(redis_url: str) -> None:
    async with linked(redis_url) as link:
        with pytest.raises(redis.exceptions.NoScriptError):
            await link.execute_command("EVALSHA", "0" * 40, 0)
        before = link.client_id
        assert before is not None
        assert await link.execute_command("CLIENT", "ID") == before


async def test_a_reply_that_tells_of_the_wrong_server_ends_the_connection() -> None:
    script = Script(b"-READONLY You can't write against a read only replica.\r\n")
    async with a_server(script) as address, linked(f"redis://{address}/0") as link:
        for connections in (1, 2):
            with pytest.raises(redis.ReadOnlyError):
                await link.execute_command("LPUSH", "q", "1")
            assert script.connections == connections
            assert link.client_id is None


async def test_a_command_leaves_a_former_primary_whose_replies_arrive(redis_url: str, namespace: str) -> None:
    async with linked(redis_url) as link:
        former_id = await link.execute_command("CLIENT", "ID")
        waits = asyncio.create_task(link.execute_command("BLPOP", namespace, 60))
        await asyncio.sleep(0)
        former = link._wire
        assert former is not None
        # As the watch of sentinels and nodes says.
        former._connection.is_former = True
        assert await link.execute_command("CLIENT", "ID") != former_id
        assert not former.closed
        await link.execute_command("LPUSH", namespace, "job")
        assert await waits == [namespace.encode(), b"job"]
        assert former.closed


async def test_silence_ends_the_connection_and_every_command_on_it() -> None:
    script = Script(b"", b"", b"")
    async with a_server(script) as address, linked(f"redis://{address}/0", timeout_s=0.2) as link:
        calls = [link.execute_command("PING") for _ in range(3)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in found] == [redis.TimeoutError] * 3
        with pytest.raises(redis.TimeoutError):
            await link.execute_command("PING")
        assert script.connections == 2


@pytest.mark.parametrize("text", [b"hello\r\n", b"+PONG\r\n+PONG\r\n"], ids=["no reply", "one too many"])
async def test_a_reply_without_a_request_ends_the_connection(text: bytes) -> None:
    script = Script(text)
    async with a_server(script) as address, linked(f"redis://{address}/0") as link:
        with contextlib.suppress(redis.ConnectionError, redis.InvalidResponse):
            assert await link.execute_command("PING") == b"PONG"
        assert link.client_id is None


async def test_a_cancelled_command_takes_its_connection_along(redis_url: str, namespace: str) -> None:
    async with linked(redis_url) as link:
        waiting = asyncio.create_task(link.execute_command("BLPOP", f"{namespace}none", 0))
        while link.client_id is None:
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
        # On the old connection this would wait for ever.
        assert await link.execute_command("PING") == b"PONG"


async def test_what_is_cancelled_when_it_has_just_connected_leaves_no_connection(
    one_redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect: Callable[[redis.asyncio.Connection], Awaitable[None]] = redis.asyncio.Connection.connect

    async with linked(one_redis_url) as link:
        opened: list[redis.asyncio.Connection] = []

        async def connect_and_cancel(connection: redis.asyncio.Connection) -> None:
            await connect(connection)
            opened.append(connection)
            opening.cancel()

        monkeypatch.setattr(redis.asyncio.Connection, "connect", connect_and_cancel)
        opening = asyncio.create_task(link.execute_command("PING"))
        await asyncio.wait([opening])
        assert opening.cancelled()
        assert [connection.is_connected for connection in opened] == [False]


async def test_a_reply_that_takes_longer_than_the_time_limit_while_it_is_coming_in() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader()
        while data := await reader.read(65536):
            commands.feed(data)
            while (command := commands.gets()) is not False:
                if greeting := GREETINGS.get(command[-1 if len(command) < 3 else 1]):
                    writer.write(greeting)
                    continue
                for byte in b"$5\r\nhello\r\n":
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.3)

    # The limit is longer than a stall, and the reply takes longer than the limit.
    async with a_server(slow) as address, linked(f"redis://{address}/0", timeout_s=2.5) as link:
        assert await link.execute_command("PING") == b"hello"


async def test_a_reply_that_came_while_the_process_was_suspended_is_read(
    redis_url: str, namespace: str
) -> None:
    key, limit_s = f"{namespace}list", 0.2

    async def is_connected() -> bool:
        with contextlib.suppress(redis.TimeoutError):
            return bool(await link.execute_command("PING"))
        return False

    async with linked(redis_url, limit_s) as link:
        # Redis may need longer to greet it.
        await async_wait_for(is_connected)
        async with time_limit(limit_s):
            reply = asyncio.create_task(link.execute_command("BRPOP", key, 0))
            await asyncio.sleep(0)
            # The loop is stopped from here on, while Redis answers and all times expire.
            with redis.Redis.from_url(redis_url) as other:
                other.lpush(key, "job")
                wait_for(lambda: not other.exists(key), message="Redis has answered")
            time.sleep(2 * limit_s)
            assert await reply == [key.encode(), b"job"]
        with pytest.raises(TimeoutError):
            async with time_limit(limit_s):
                await asyncio.Event().wait()


async def test_a_connection_that_is_closed_right_after_the_login_is_an_outage_at_once() -> None:
    async def curt(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeted = 0
        while greeted < 2:
            greeted += (await reader.read(65536)).count(b"SETINFO")
        writer.write(b"+OK\r\n" * 2)
        writer.close()

    async with a_server(curt) as address, linked(f"redis://{address}/0", timeout_s=60) as link:
        async with asyncio.timeout(stretched(10)):
            with pytest.raises(RedisUnavailableError), errors_translated():
                await link.execute_command("PING")


async def test_an_old_primary_that_is_left_while_it_is_asked_for_the_number_of_the_connection() -> None:
    asked = asyncio.Event()

    async def no_number(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(b"+OK\r\n" * data.count(b"SETINFO"))
            if b"\r\nID\r\n" in data:
                asked.set()

    async with a_server(no_number) as address, linked(f"redis://{address}/0", timeout_s=60) as link:
        opening = asyncio.create_task(link.execute_command("PING"))
        await asked.wait()
        link.drop_connection()
        with pytest.raises(redis.ConnectionError):
            async with asyncio.timeout(stretched(10)):
                await opening


async def test_a_link_that_is_closed_while_it_connects_leaves_no_connection() -> None:
    asked, closed, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Python 3.13 reports the end of a connection with unread replies as a reset.
        with contextlib.suppress(ConnectionResetError):
            while data := await reader.read(65536):
                asked.set()
                await closed.wait()
                writer.write(b"+OK\r\n" * data.count(b"SETINFO"))
        left.set()

    async with a_server(slow) as address, linked(f"redis://{address}/0", timeout_s=60) as link:
        # The second one waits for the connection of the first one.
        opening = [asyncio.create_task(link.execute_command("PING")) for _ in range(2)]
        await asked.wait()
        await link.aclose()
        closed.set()
        async with asyncio.timeout(stretched(10)):
            for one in opening:
                with pytest.raises(redis.ConnectionError, match="another server is the primary"):
                    await one
            await left.wait()


async def test_what_a_server_says_unasked_in_the_third_protocol_is_no_reply(one_redis_url: str) -> None:
    async with linked(f"{one_redis_url}?protocol=3") as link:
        await link.execute_command("PING")
        wire, heard = link._wire, list[Any]()
        assert wire is not None
        waiting = asyncio.create_task(link.execute_command("ECHO", "a job", on_reply=heard.append))
        await asyncio.sleep(0)
        wire.data_received(b">2\r\n$6\r\nMOVING\r\n:1\r\n")
        assert await waiting == b"a job"
        assert heard == [b"a job"]


async def test_a_closed_connection_fails_what_is_under_way_and_opens_again(redis_url: str) -> None:
    async with linked(redis_url) as link, linked(redis_url) as killer:
        waiting = asyncio.create_task(link.execute_command("BLPOP", "none", 0))
        while link.client_id is None:
            await asyncio.sleep(0.01)
        await killer.execute_command("CLIENT", "KILL", "ID", link.client_id)
        with pytest.raises(redis.ConnectionError):
            await waiting
        assert await link.execute_command("PING") == b"PONG"


async def test_an_absent_server_is_an_error_of_the_command() -> None:
    async with linked("redis://127.0.0.1:1/0") as link:
        with pytest.raises(redis.ConnectionError):
            await link.execute_command("PING")


async def test_the_login_and_the_database_are_those_of_the_url(one_redis_url: str) -> None:
    address = urlsplit(one_redis_url).netloc
    async with linked(one_redis_url) as admin:
        await admin.execute_command("ACL", "SETUSER", "linker", "on", ">secret", "+@all", "~*")
        async with linked(f"redis://linker:secret@{address}/3") as link:
            assert await link.execute_command("ACL", "WHOAMI") == b"linker"
            assert b" db=3 " in await link.execute_command("CLIENT", "INFO")
        async with linked(f"redis://linker:wrong@{address}/3") as link:
            with pytest.raises(redis.AuthenticationError):
                await link.execute_command("PING")
        await admin.execute_command("ACL", "DELUSER", "linker")


async def test_tls(one_redis_url: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    upstream = urlsplit(one_redis_url)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(upstream.hostname, upstream.port)
        try:
            await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))
        finally:
            ours.transport.abort()

    async with (
        a_server(pass_on, ssl=context) as address,
        linked(f"rediss://{address}/0", ca_file=str(tmp_path / "ca.pem")) as link,
    ):
        text = b"x" * 300_000
        assert await link.execute_command("ECHO", text) == text
        assert await link.execute_command("PING") == b"PONG"


async def test_a_reply_in_the_moment_of_a_cancellation_is_a_lost_one(one_redis_url: str) -> None:
    async with linked(one_redis_url) as link:
        await link.execute_command("PING")
        wire, heard = link._wire, list[Any]()
        assert wire is not None
        waiting = asyncio.create_task(link.execute_command("BLPOP", "nothing", 5, on_reply=heard.append))
        await asyncio.sleep(0)
        waiting.cancel()
        wire.data_received(b"+a job\r\n")
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert heard == []
        assert wire.closed
        assert await link.execute_command("PING") == b"PONG"


async def test_a_write_to_a_connection_that_was_just_lost_is_an_outage_on_both_loops() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with a_server(hang_up) as address:
        host, _, port = address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        with pytest.raises(RedisUnavailableError), errors_translated():
            writer.writelines([b"PING"])
            await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
