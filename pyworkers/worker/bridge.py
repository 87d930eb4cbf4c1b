"""Bridge: lets ``def`` and ``async def`` code of one job call each other.

Runs in the worker process and in ``pyworkers.testing``. In a runner that has one job in a thread, async code
runs on a loop of that thread, which is made at its first use and kept. In a runner whose jobs share a loop,
``def`` code runs on threads of its process. Where all code is ``def``, there is no loop and no other thread.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from asyncio import AbstractEventLoop, CancelledError
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from pyworkers.middleware import AsyncCallNext, CallNext, is_async
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Outcome
from pyworkers.worker.execution import caused, current_execution, raise_here

# A job needs a thread for each of its links that waits, so fewer threads than jobs are not enough: a pool
# that is smaller than its waiting links would never end. Threads are started as they are needed.
_MAX_THREADS = 1 << 16


class Bridge:
    """The loops and threads of a worker process, by its mode: ``process``, ``async`` or ``thread``."""

    def __init__(self, mode: str = "process") -> None:
        self._shared = mode == "async"
        # Only a signal handler can raise a request, and Python calls these in the main thread alone.
        self._deliver_here = raise_here if mode == "process" else None
        self._here = threading.local()
        self._pool: ThreadPoolExecutor | None = None

    def for_def(self, call: AsyncCallNext) -> CallNext:
        """A function that waits for the result of ``call``, which runs on the loop."""

        def call_next(message: Message) -> Outcome:
            return self._wait(_AsyncCall(partial(call, message)))

        return call_next

    def for_async(self, call: CallNext, *, has_async: bool) -> AsyncCallNext:
        """A coroutine function that runs ``call``: in this thread if only the one job waits for it.

        Code that itself waits for async code (``has_async``) always gets another thread: the loop must run.
        """

        async def in_this_thread(message: Message) -> Outcome:
            # Here, requests to end can be raised in it, as in any def job of this thread.
            before = current_execution().deliver_by(self._deliver_here)
            try:
                with _no_running_loop():
                    return call(message)
            finally:
                current_execution().deliver_by(before)

        async def in_another_thread(message: Message) -> Outcome:
            before = current_execution().deliver_by(None)
            try:
                work = _Work(partial(copy_context().run, call, message))
                if cancelled := await self._run_on_thread(work):
                    # It could not be interrupted, so the cancellation takes effect now.
                    raise cancelled
                outcome: Outcome = work.result()
                return outcome
            finally:
                current_execution().deliver_by(before)

        return in_another_thread if self._shared or has_async else in_this_thread

    async def finish(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function on a thread, in a copy of this context, whether or not this task is cancelled."""
        work = _Work(partial(copy_context().run, function, *args))
        await self._run_on_thread(work)
        return work.result()

    async def _run_on_thread(self, work: _Work) -> CancelledError | None:
        """Run the work on a thread, also if this task is cancelled, which is returned."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_MAX_THREADS, "pyworkers")
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._pool, self._be_guest, loop, work)
        cancelled: CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait((future,))
            except CancelledError as error:
                cancelled = error
        return cancelled

    def loop(self) -> AbstractEventLoop:
        """The loop of this thread."""
        return self._own_loop().loop

    def run(self, function: Callable[..., object], *args: object) -> object:
        """Call a hook; one that is async on the loop of this thread, or on the loop for which it works."""
        if not is_async(function):
            return function(*args)
        call = _AsyncCall(partial(function, *args))
        self._complete(call)
        return call.result()

    def close(self) -> None:
        """Close the loop of this thread, with the tasks that still run on it, and release the threads."""
        own: _OwnLoop | None = self._here.__dict__.pop("own", None)
        if own is not None:
            own.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _wait(self, call: _AsyncCall) -> Outcome:
        """Run the call on the loop, and wait for its result in this thread."""
        execution = current_execution()
        # Not while the loop is made, of which a request would leave a half.
        before = execution.deliver_by(None)
        try:
            loop = self._here.__dict__.get("host") or self._own_loop().loop
            execution.deliver_by(lambda request: loop.call_soon_threadsafe(call.cancel, request))
            # Its result is in the call, also if a request came too late to change it.
            with suppress(CancelledError, FutureCancelled):
                self._complete(call)
        finally:
            execution.deliver_by(before)
        outcome: Outcome = call.result()
        return outcome

    def _complete(self, call: _AsyncCall) -> None:
        """Run the call to its end on the loop, while this thread waits."""
        host: AbstractEventLoop | None = self._here.__dict__.get("host")
        if host is None:
            self._own_loop().run(call.run())
        else:
            asyncio.run_coroutine_threadsafe(call.run(), host).result()

    def _own_loop(self) -> _OwnLoop:
        own: _OwnLoop | None = self._here.__dict__.get("own")
        if own is None:
            own = self._here.__dict__["own"] = _OwnLoop(self._shared)
        return own

    def _be_guest(self, host: AbstractEventLoop, work: _Work) -> None:
        """Run the work in this thread of the pool, while the host's loop runs its async code."""
        self._here.__dict__["host"] = host
        work.run()


class _OwnLoop:
    """The loop of a thread, which runs while code of that thread waits for async code."""

    def __init__(self, shared: bool) -> None:
        self._runner = asyncio.Runner(loop_factory=_fast_loop() if shared else None)
        with _no_running_loop():
            self.loop = self._runner.get_loop()
        # uvloop, which is no BaseEventLoop, does the same by itself.
        self._wakes = threading.current_thread() is threading.main_thread() and isinstance(
            self.loop, asyncio.BaseEventLoop
        )
        self._reader, self._waker = socket.socketpair()
        for end in (self._reader, self._waker):
            end.setblocking(False)
        self.loop.add_reader(self._reader, self._reader.recv, 4096)

    def run(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run the coroutine, which raises nothing, to its end; a signal wakes the loop."""
        with _no_running_loop(), self._woken_by_signals():
            task = self.loop.create_task(coroutine)
            while not task.done():
                # Another task has raised it, and is over. It ends no job: those on the loop would lose their
                # process, or run on after their outcome.
                with suppress(SystemExit):
                    self.loop.run_until_complete(task)

    def close(self) -> None:
        """Cancel the tasks that still run, and close the loop."""
        self.loop.remove_reader(self._reader)
        with _no_running_loop():
            self._runner.close()
        self._reader.close()
        self._waker.close()

    @contextmanager
    def _woken_by_signals(self) -> Iterator[None]:
        # Python runs its signal handlers before the loop goes to sleep, and when a signal interrupts that. A
        # signal that arrives in between would have to wait for the next event.
        if not self._wakes:
            yield
            return
        before = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)


def _fast_loop() -> Callable[[], AbstractEventLoop] | None:
    """uvloop's, if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    make: Callable[[], AbstractEventLoop] = uvloop.new_event_loop
    return make


class _Work:
    """A call in another thread, and how it ended."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            # The traceback refers to this frame: a cycle that would keep the job's data in memory.
            del error
        return self._result


class _AsyncCall:
    """A call of async code by def code, and how it ended."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._task: asyncio.Task[None] | None = None
        self._request: BaseException | None = None
        self._result: Any = None
        self._error: BaseException | None = None

    async def run(self) -> None:
        self._task = asyncio.current_task()
        if self._request is not None:
            self.cancel(self._request)
        try:
            self._result = await self._function()
        except BaseException as error:
            self._error = error
        self._task = None

    def cancel(self, request: BaseException) -> None:
        """Cancel the code; called on its loop."""
        self._request = request
        if self._task is not None:
            self._task.cancel(request)

    def result(self) -> Any:
        error, self._error = self._error, None
        request, self._request = self._request, None
        try:
            if request is not None and isinstance(error, CancelledError):
                raise caused(request, error)
            if error is not None:
                raise error
        finally:
            # As in _Work.
            del error, request
        return self._result


@contextmanager
def _no_running_loop() -> Iterator[None]:
    """Let code of this thread run its own loop, as it does where no loop is around it."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
