"""Tests that are coroutine functions: each runs in an event loop of its own (hook in tests/conftest.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any


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
    assert not left, f"tasks are left: {left}"
