"""Waiting in the master's event loop: for a condition, an event, the end of tasks, a callback that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

POLL_S = 0.01
_AGAIN_S = 0.1

StartTask = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
"""Runs a coroutine as a task of the server, by this name (``Tasks.start``)."""


def now() -> float:
    """The loop's clock, in seconds."""
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], bool], deadline: float) -> bool:
    """Wait for a condition, at most until a time of the loop's clock. True if the condition holds."""
    while not condition():
        if now() >= deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True


async def pause(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, at most for ``seconds``. True if the event was set.

    Not ``wait_for``: in Python 3.11, it suppresses a cancellation when the event has just been set.
    """
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def ended(tasks: Iterable[asyncio.Task[Any]], timeout_s: float | None = None) -> None:
    """Wait for the end of tasks, at most ``timeout_s``. It cancels none, and raises none of their errors."""
    if pending := [task for task in tasks if not task.done()]:
        await asyncio.wait(pending, timeout=timeout_s)


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end. A task that suppresses the cancellation is cancelled again."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_S)


def on_callback_failure(loop: asyncio.AbstractEventLoop, fail: Callable[[str, BaseException], None]) -> None:
    """Call ``fail`` with a message and the error when a callback of the loop raises.

    asyncio would only log it, and the callback's work would never be completed: for example, a job whose
    outcome was read would not be settled.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "handle" in context and isinstance(error, Exception):
            fail(context["message"], error)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
