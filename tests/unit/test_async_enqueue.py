"""The enqueue methods of a job for event loops, and the warning of those that block one."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyworkers import AsyncClient, BadArgumentError, Client, Message, Worker
from pyworkers.app import Job
from pyworkers.middleware import ClientCallNext
from pyworkers.protocol.draft import JobDraft
from pyworkers.testing import fake

worker = Worker()


@worker.job(queue="mail", max_waiting=2)
def send_mail(user_id: int, subject: str = "hello") -> None: ...


WHEN = datetime(2100, 1, 1, tzinfo=UTC)


async def test_each_enqueue_method_has_a_twin() -> None:
    with fake() as queue:
        jid = await send_mail.aenqueue(1, subject="a")
        await send_mail.aenqueue_in(timedelta(hours=1), 2)
        await send_mail.aenqueue_at(WHEN, 3, "c")
        jids = await send_mail.options(max_waiting=None).aenqueue_bulk([(4,), (5, "e")])
    assert [(job.args, job.at is None) for job in queue.jobs] == [
        ([1, "a"], True),
        ([2], False),
        ([3, "c"], False),
        ([4], True),
        ([5, "e"], True),
    ]
    assert [queue.jobs[place].jid for place in (0, 3, 4)] == [jid, *jids]
    assert queue.jobs[2].at == WHEN.timestamp()


async def test_a_full_queue_is_none_for_the_twin_of_try_enqueue() -> None:
    with fake():
        assert all([await send_mail.atry_enqueue(user) for user in (1, 2)])
        assert await send_mail.atry_enqueue(3) is None


async def test_the_twins_check_their_arguments() -> None:
    wrong: Any = send_mail
    with fake() as queue:
        with pytest.raises(TypeError, match=r"send_mail\(\): missing a required argument: 'user_id'"):
            await wrong.aenqueue()
        with pytest.raises(BadArgumentError, match=r"args\[0\]"):
            await wrong.aenqueue({1})
        with pytest.raises(BadArgumentError, match="a list for each job"):
            await wrong.aenqueue_bulk([1, 2])
        with pytest.raises(BadArgumentError, match="a list for each job"):
            wrong.enqueue_bulk([1, 2])
        client: Any = AsyncClient("redis://127.0.0.1")
        with pytest.raises(BadArgumentError, match="args_list is of type int"):
            await client.enqueue_bulk("q", "C", 7)
    assert queue.jobs == []


async def test_the_twins_pass_the_client_middleware() -> None:
    tenants = Worker()

    @tenants.client_middleware
    def tenant(draft: JobDraft, call_next: ClientCallNext) -> str:
        return call_next(draft.with_extra(tenant=7))

    @tenants.job
    def clean() -> None: ...

    with fake() as queue:
        await clean.aenqueue()
        await clean.aenqueue_bulk([()])
    assert [job.data["tenant"] for job in queue.jobs] == [7, 7]


BLOCKING: list[tuple[Callable[[], object], str]] = [
    (lambda: send_mail.enqueue(1), r"enqueue\(\) blocks the event loop: await aenqueue\(\)"),
    (lambda: send_mail.enqueue_in(1, 1), r"enqueue_in\(\) blocks the event loop: await aenqueue_in\(\)"),
    (lambda: send_mail.enqueue_bulk([(1,)]), r"enqueue_bulk\(\) .* await aenqueue_bulk\(\)"),
    (lambda: send_mail.try_enqueue(1), r"try_enqueue\(\) .* await atry_enqueue\(\)"),
    (lambda: worker.enqueue("q", "C"), r"enqueue\(\) .* await AsyncClient.enqueue\(\)"),
    (lambda: send_in_batch(), r"the end of a batch blocks the event loop: use async with"),
]


def send_in_batch() -> None:
    with worker.batch():
        send_mail.enqueue(1)


@pytest.mark.parametrize(("call", "message"), BLOCKING)
async def test_a_blocking_call_in_a_loop_works_and_warns_with_the_twin(
    call: Callable[[], object], message: str
) -> None:
    with fake() as queue, pytest.warns(RuntimeWarning, match=message) as caught:
        call()
    assert len(queue.jobs) == 1
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (worker.status, r"^status\(\) blocks the event loop: await AsyncClient.status\(\)$"),
        (worker.result, r"^result\(\) .* await AsyncClient.result\(\)$"),
        (Client("redis://127.0.0.1").history, r"^history\(\) .* await AsyncClient.history\(\)$"),
    ],
)
async def test_a_blocking_question_in_a_loop_is_answered_and_warns(
    call: Callable[[str], object], message: str
) -> None:
    with fake() as queue:
        jid = await send_mail.options(track=60, history=True).aenqueue(1)
        await asyncio.to_thread(queue.drain)
        with pytest.warns(RuntimeWarning, match=message) as caught:
            answer = call(jid)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert await asyncio.to_thread(call, jid) == answer
    assert [warning.filename for warning in caught] == [__file__]


async def test_a_batch_has_twins_for_its_questions() -> None:
    with fake() as queue:
        async with worker.batch() as batch:
            await send_mail.aenqueue(1)
        await asyncio.to_thread(queue.drain)
        for call in (batch.status, batch.result):
            name = call.__name__
            with pytest.warns(RuntimeWarning, match=rf"^{name}\(\) .* await a{name}\(\)$") as caught:
                call()
            assert {warning.filename for warning in caught} == {__file__}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (await batch.astatus()).done == 1
            assert await batch.aresult() is None


async def test_the_warning_comes_once_for_each_place() -> None:
    with fake(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for user in range(2):
            send_mail.enqueue(user)
        send_mail.options(max_waiting=None).enqueue(3)
    assert [warning.category for warning in caught] == [RuntimeWarning] * 2


def test_no_warning_without_a_loop_and_in_def_jobs_of_an_async_chain() -> None:
    mixed = Worker()

    @mixed.middleware
    async def link(message: Message, call_next: Callable[[Message], Awaitable[Any]]) -> Any:
        return await call_next(message)

    @mixed.job
    def first() -> None:
        second.enqueue()

    @mixed.job
    def second() -> None: ...

    with fake() as queue, warnings.catch_warnings():
        warnings.simplefilter("error")
        first.enqueue()
        assert queue.drain() == 2


async def test_a_job_in_a_batch_of_an_async_with_does_not_warn() -> None:
    with fake() as queue, warnings.catch_warnings():
        warnings.simplefilter("error")
        async with worker.batch():
            send_mail.enqueue(1)
            await send_mail.aenqueue(2)
    assert len(queue.jobs) == 2


def test_a_job_has_a_twin_for_each_enqueue_method() -> None:
    methods = {name for name in dir(Job) if "enqueue" in name and not name.startswith("_")}
    blocking = {name for name in methods if not name.startswith("a")}
    assert {name.removeprefix("a") for name in methods - blocking} == blocking


def _public(kind: type[object]) -> dict[str, Any]:
    methods = inspect.getmembers(kind, inspect.isfunction)
    # Those in between are called by batches and checkpoints, on a thread.
    internal = ("enlist", "defer", "saved", "aside")
    return {name: method for name, method in methods if name not in internal and not name.startswith("_")}


def test_both_clients_have_the_same_methods() -> None:
    blocking, others = _public(Client), _public(AsyncClient)
    signatures = [{n: inspect.signature(method) for n, method in each.items()} for each in (blocking, others)]
    assert signatures[0] == signatures[1]
    assert all(inspect.iscoroutinefunction(method) for method in others.values())


@pytest.mark.parametrize("name", ["enqueue", "try_enqueue", "enqueue_in", "enqueue_at", "enqueue_bulk"])
def test_both_methods_of_a_job_take_the_same(name: str) -> None:
    assert inspect.signature(getattr(Job, name)) == inspect.signature(getattr(Job, f"a{name}"))


@worker.job(track=60)
def kept(value: int) -> int:
    return value


def in_another_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a loop of another library, such as trio, gets; here it would have to wait for nothing."""
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    return stopped.value.value


@pytest.mark.parametrize(
    "call",
    [
        lambda client: kept.aenqueue(1),
        lambda client: kept.aenqueue_bulk([(1,)]),
        lambda client: client.enqueue("q", "C", []),
        lambda client: client.status("a" * 24),
        lambda client: client.result("a" * 24),
        lambda client: client.history("a" * 24),
        lambda client: client.cancel("a" * 24),
        lambda client: client.find("a" * 24),
    ],
)
def test_another_loop_is_named(
    call: Callable[[AsyncClient], Coroutine[Any, Any, Any]],
) -> None:
    with pytest.raises(RuntimeError, match=r"no event loop of asyncio is running: .*trio"):
        call(AsyncClient()).send(None)


def test_fake_needs_no_loop_of_asyncio() -> None:
    client = AsyncClient.of(worker)
    with fake() as queue:
        jid = in_another_loop(kept.aenqueue(7))
        batch = worker.batch()
        with batch:
            kept.enqueue(8)
        queue.drain()
        assert in_another_loop(client.result(jid)) == 7
        assert in_another_loop(batch.astatus()).done == 1
        assert in_another_loop(batch.aresult()) is None
