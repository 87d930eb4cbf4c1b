"""Calls and steps, over a blocking client and in an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import RedisUnavailableError, StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import (
    PAUSE,
    Mode,
    Operation,
    Steps,
    arun,
    arun_one,
    command,
    every,
    one,
    run,
    script,
)
from pyworkers.store.transport.connections import connect, connect_async
from pyworkers.store.transport.link import Link
from pyworkers.store.transport.replies import integer
from tests.store.conftest import Run


@pytest.fixture(params=["blocking", "asyncio"])
def run_work(request: pytest.FixtureRequest, redis_url: str) -> Run:
    """Runs calls and steps over one kind of client, each time over a new one."""
    config = RedisConfig(redis_url)

    def blocking(operation: Operation[Any]) -> Any:
        with connect(config) as client:
            return run(client, operation)

    async def in_loop(operation: Operation[Any]) -> Any:
        async with connect_async(config) as client:
            return await arun(client, operation)

    return blocking if request.param == "blocking" else lambda operation: asyncio.run(in_loop(operation))


@pytest.fixture
def key(namespace: str) -> str:
    return f"{namespace}some"


def test_one_command_is_read(run_work: Run, key: str) -> None:
    assert run_work(one("LPUSH", key, "a", b"b", read=integer)) == 2
    assert run_work(one("LRANGE", key, 0, -1, read=lambda reply: [text.decode() for text in reply])) == [
        "b",
        "a",
    ]


def test_texts_that_are_not_utf_8_are_sent_as_they_were_read(run_work: Run, key: str) -> None:
    name = b"\xff".decode(errors="surrogateescape")
    run_work(one("SADD", key, name, read=integer))
    assert set(run_work(one("SMEMBERS", key, read=set))) == {b"\xff"}


def test_several_commands_take_one_round_trip(run_work: Run, key: str) -> None:
    commands = [command("INCRBY", key, 2), command("INCRBY", key, 3, read=lambda reply: reply * 10)]
    assert run_work(every(commands)) == [2, 50]
    assert run_work(every([])) == []


async def test_a_pause_lets_other_tasks_run_and_sends_nothing() -> None:
    seen: list[str] = []

    def computing() -> Steps[None]:
        seen.append("begin")
        yield from PAUSE
        seen.append("end")

    async def other() -> None:
        seen.append("other")

    nowhere = connect_async(RedisConfig(url="redis://127.0.0.1:1"))
    await asyncio.gather(arun(nowhere, computing()), other())
    assert seen == ["begin", "other", "end"]


def test_a_refusal_has_the_words_of_redis_and_not_those_of_the_commands(run_work: Run, key: str) -> None:
    run_work(one("LPUSH", key, "a", read=integer))
    with pytest.raises(StoreError) as caught:
        run_work(every([command("GET", key), command("LLEN", key)]))
    about = "WRONGTYPE Operation against a key holding the wrong kind of value"
    assert caught.value.message == f"a key has the wrong type: {about}"


def test_a_refusal_fails_the_call_and_the_commands_behind_it_have_run(run_work: Run, key: str) -> None:
    run_work(one("SADD", key, "a", read=integer))
    with pytest.raises(StoreError, match="WRONGTYPE"):
        run_work(every([command("INCRBY", key, 1), command("SADD", key, "b")]))
    assert run_work(one("SCARD", key, read=integer)) == 2


def test_a_refused_command_of_a_lenient_call_has_no_reply(run_work: Run, key: str) -> None:
    run_work(one("SADD", key, "a", read=integer))
    commands = [command("GET", key, read=bytes), command("SCARD", key, read=integer)]
    assert run_work(every(commands, Mode.LENIENT)) == [None, 1]
    assert run_work(every(commands[:1], Mode.LENIENT)) == [None]


def test_a_transaction_is_undone_as_a_whole(run_work: Run, key: str) -> None:
    with pytest.raises(StoreError):
        run_work(every([command("INCRBY", key, 1), command("NO-SUCH-COMMAND")], Mode.TRANSACTION))
    assert run_work(every([command("INCRBY", key, 1)], Mode.TRANSACTION)) == [1]


def test_a_script_is_told_to_a_server_that_does_not_know_it(run_work: Run, namespace: str) -> None:
    keys = Keys(namespace)
    mark = script("mark", [keys.cancelled], ["jid", 60], read=lambda reply: reply)
    run_work(one("SCRIPT FLUSH", read=lambda reply: reply))
    run_work(mark)
    run_work(mark)
    assert run_work(one("ZCARD", keys.cancelled, read=integer)) == 1


def test_steps_build_each_call_from_the_replies_before(run_work: Run, key: str) -> None:
    def doubled() -> Steps[int]:
        found: int = yield from one("INCRBY", key, 5, read=integer)
        last: int = yield from one("INCRBY", key, found, read=integer)
        return last

    assert run_work(doubled()) == 10


def test_steps_may_catch_the_error_of_a_call(run_work: Run, key: str) -> None:
    def careful() -> Steps[str]:
        yield from one("SADD", key, "a", read=integer)
        try:
            yield from one("INCRBY", key, 1, read=integer)
        except StoreError as error:
            return error.code
        return "no error"

    assert run_work(careful()) == "WRONGTYPE"


def test_a_reply_of_another_shape_is_a_lost_connection(run_work: Run, key: str) -> None:
    run_work(one("SET", key, "text", read=lambda reply: reply))
    with pytest.raises(RedisUnavailableError, match="GET was answered with"):
        run_work(one("GET", key, read=integer))


async def test_a_link_runs_calls_of_one_command(redis_url: str, key: str) -> None:
    link = Link(RedisConfig(redis_url))
    try:
        assert await arun_one(link, one("INCRBY", key, 2, read=integer)) == 2
        with pytest.raises(ValueError, match="pipeline"):
            await arun_one(link, every([command("GET", key), command("GET", key)]))
        with pytest.raises(StoreError, match="WRONGTYPE"):
            await arun_one(link, one("LPUSH", key, 1, read=integer))
    finally:
        await link.aclose()
