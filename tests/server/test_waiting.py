"""Waiting in the master's event loop, and what must not happen there."""

from __future__ import annotations

import asyncio

import pytest

from pyworkers.server.waiting import cancel, ended, on_callback_failure, pause
from tests.helpers.support import async_wait_for


@pytest.mark.parametrize(("came", "seconds"), [(True, 60.0), (True, -1.0), (False, 0.01), (False, -1.0)])
async def test_a_pause_ends_with_its_event_or_its_time(came: bool, seconds: float) -> None:
    event = asyncio.Event()
    if came:
        event.set()
    assert await pause(event, seconds) is came


async def test_a_pause_whose_event_has_just_come_is_cancelled_all_the_same() -> None:
    event = asyncio.Event()
    pausing = asyncio.create_task(pause(event, 60))
    await asyncio.sleep(0)
    event.set()
    pausing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pausing


async def test_the_end_of_tasks_is_awaited_with_a_limit_and_without_their_errors() -> None:
    async def fail() -> None:
        raise ValueError

    failing, endless = asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(60))
    await ended([])
    await ended([failing])
    assert isinstance(failing.exception(), ValueError)
    await ended([failing, endless], 0.01)
    assert not endless.done()
    await cancel([endless])


@pytest.mark.usefixtures("new_loop")
async def test_a_callback_that_raises_is_reported_for_every_kind_of_call() -> None:
    failures: list[str] = []

    def bad(why: str) -> None:
        raise ValueError(why)

    loop = asyncio.get_running_loop()
    on_callback_failure(loop, lambda _, error: failures.append(str(error)))
    loop.call_soon(bad, "soon")
    loop.call_later(0.001, bad, "later")
    done = loop.create_future()
    done.add_done_callback(lambda _: bad("done"))
    done.set_result(None)
    await async_wait_for(lambda: len(failures) == 3)
    assert sorted(failures) == ["done", "later", "soon"]


async def test_a_future_that_is_not_awaited_is_no_failed_callback() -> None:
    failures: list[BaseException] = []
    loop = asyncio.get_running_loop()
    on_callback_failure(loop, lambda _, error: failures.append(error))
    loop.create_future().set_exception(ValueError("not awaited"))
    await asyncio.sleep(0)
    assert failures == []
