"""Waiting in the master's event loop: for a condition, and for tasks to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

_POLL_S = 0.01
_AGAIN_S = 0.1


def now() -> float:
    """The loop's clock, in seconds."""
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], bool], deadline: float) -> bool:
    """Wait for a condition, at most until a moment of the loop's clock. Whether it came true."""
    while not condition():
        if now() >= deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end.

    One request may be lost: ``wait_for`` of Python 3.11 swallows it when what it waits for is just done.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_S)
