"""Tests that are coroutine functions: each runs in its own event loop (hook in tests/conftest.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from tests.helpers.support import PATIENCE_S


async def run_in_loop(test: Callable[..., Awaitable[None]], arguments: Mapping[str, Any]) -> None:
    """Await ``test``, and fail if a task is left.

    An argument that is an asynchronous context manager is entered first, and the test gets its value. Thus a
    fixture that needs the loop has two decorators: ``@pytest.fixture`` and ``@asynccontextmanager``.
    """
    async with AsyncExitStack() as entered:
        values = {
            name: await entered.enter_async_context(value)
            if isinstance(value, AbstractAsyncContextManager)
            else value
            for name, value in arguments.items()
        }
        await test(**values)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    # One that is cancelled already needs another round of the loop, or a few.
    if cancelled := [task for task in left if task.cancelling()]:
        await asyncio.wait(cancelled, timeout=PATIENCE_S)
    left = {task for task in left if not task.done()}
    assert not left, f"tasks are left: {left}"
