"""Blocking: warns about calls that block a running event loop.

Used in programs that enqueue jobs or ask for them. It changes no call.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from asyncio import AbstractEventLoop, _get_running_loop
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypeVar

from pyworkers.enqueueing.interception import interceptor

T = TypeVar("T")

_PACKAGE = str(Path(__file__).parent.parent)


def warn_in_loop() -> None:
    """Warn once for each place in the code (RuntimeWarning) if this thread runs an event loop."""
    if _get_running_loop() is None:
        return
    frame: FrameType | None = sys._getframe(1)
    level, called = 2, ""
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        called = frame.f_code.co_qualname
        frame, level = frame.f_back, level + 1
    warnings.warn(_advice(called), RuntimeWarning, stacklevel=level)


def running_loop() -> AbstractEventLoop:
    """The event loop of this thread. Raises RuntimeError if there is none, or one of another library."""
    if (loop := _get_running_loop()) is None:
        raise RuntimeError(
            "no event loop of asyncio is running: call the method without the a, in trio by "
            "trio.to_thread.run_sync(…)"
        )
    return loop


async def in_thread(function: Callable[[], T]) -> T:
    """The result of a call that may block; under ``fake()``, no other library's loop is in its way."""
    if interceptor() is not None and _get_running_loop() is None:
        return function()
    running_loop()
    return await asyncio.to_thread(function)


def _advice(called: str) -> str:
    """The message for the method that the application has called, e.g. ``Job.enqueue_in``."""
    kind, _, name = called.rpartition(".")
    if name == "__exit__":
        return "the end of a batch blocks the event loop: use async with"
    twin = f"AsyncClient.{name}" if kind in ("Producer", "Client", "Worker") else f"a{name}"
    return f"{name}() blocks the event loop: await {twin}()"
