"""Spawner: the master's handle on one fork server.

Runs in the master. It starts the process, sends it words and descriptors, and passes each message about a
worker to the object of that worker, by its number. A fork server is one *generation* of the application's
code; a reload is a second Spawner.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from pyworkers.ipc import control
from pyworkers.ipc.control import (
    AboutWorker,
    Exited,
    HooksRan,
    Identify,
    Load,
    Loaded,
    LoadFailed,
    RunHooks,
    Spawn,
    Spawned,
    Word,
)
from pyworkers.server.generations.launch import Launch, execute
from pyworkers.server.generations.reaper import Handle, Reaper

Fds = tuple[int, int, int]
# Until the fork server has taken some of the descriptors that are under way.
_CROWDED_S = 0.05


class Spawner:
    """Starts one fork server. ``start`` needs no event loop, so that it can import while the master does."""

    def __init__(self, load: Load, env: Mapping[str, str], launch: Launch = execute) -> None:
        self._load = load
        self._env = env
        self._launch = launch
        self._reader = control.LineReader()
        self._outbox: deque[tuple[bytes, Fds | None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reaper = Reaper()
        self._on_down: Callable[[Spawner], None] = lambda spawner: None
        self._numbers = itertools.count(1)
        self._workers: dict[int, Handle] = {}
        self._released = asyncio.Event()
        self._answers: list[Loaded | LoadFailed] = []
        self._answered = asyncio.Event()
        self.alive = False
        self.handlers = [""]
        """The names of the application's handlers by their numbers in outcomes; 0 is none."""
        self._hooks_ran = asyncio.Event()
        self._lifeline = -1

    def start(self) -> None:
        """Start the process and have it import the application. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        lifeline_end, self._lifeline = os.pipe()
        try:
            self.process = self._launch(theirs.fileno(), lifeline_end, self._env)
        except OSError:
            ours.close()
            self._close_lifeline()
            raise
        finally:
            theirs.close()
            os.close(lifeline_end)
        self._channel = ours
        self.alive = True
        ours.sendall(control.dump(self._load))
        ours.setblocking(False)

    def attach(self, reaper: Reaper, on_down: Callable[[Spawner], None]) -> None:
        """From now on listen in the running loop; ``on_down`` is called when the process is gone."""
        self._reaper = reaper
        self._on_down = on_down
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._channel, self._listen)

    async def loaded(self) -> Loaded | LoadFailed:
        """What came of the import, once it is over."""
        await self._answered.wait()
        return self._answers[0]

    def spawn(self, worker: Handle, queue: str, descriptors: Fds) -> int:
        """Ask for a worker; returns its number, which is unique in this fork server.

        The descriptors are closed here once they are on their way.
        """
        number = next(self._numbers)
        self._workers[number] = worker
        self._post(Spawn(number, queue), descriptors)
        return number

    def expect(self, pid: int, worker: Handle) -> None:
        """Have the object of a worker told of its end, even if this fork server is gone by then."""
        self._reaper.expect(pid, worker)

    def forget(self, number: int, pid: int) -> None:
        """The end of a worker is known: what is said of it from now on is ignored."""
        self._reaper.forget(pid, self._workers.pop(number))
        self._released.set()

    @property
    def in_use(self) -> bool:
        """True while a worker lives."""
        return bool(self._workers)

    async def unused(self) -> None:
        """Wait until no worker lives."""
        while self._workers:
            self._released.clear()
            await self._released.wait()

    async def run_hooks(self, kind: str) -> None:
        """Have the application's hooks of one kind run in a process of their own, and wait for their end."""
        self._hooks_ran.clear()
        self._post(RunHooks(kind), None)
        if self.alive:
            await self._hooks_ran.wait()

    def identify(self, identity: str) -> None:
        """Have workers that are yet to start log another identity."""
        self._post(Identify(identity), None)

    def close(self) -> None:
        """Hang up: the fork server ends by itself. Its workers go on."""
        if not self.alive:
            return
        self.alive = False
        self._hooks_ran.set()
        if self._loop is not None:
            self._loop.remove_reader(self._channel)
            self._loop.remove_writer(self._channel)
        self._channel.close()
        for _, descriptors in self._outbox:
            _close_all(descriptors)
        self._outbox.clear()

    def kill(self) -> None:
        """End the process now, by its lifeline."""
        self.close()
        self._close_lifeline()
        if self.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _close_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _post(self, word: Word, descriptors: Fds | None) -> None:
        if not self.alive:
            _close_all(descriptors)
            return
        self._outbox.append((control.dump(word), descriptors))
        self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._outbox and self.alive:
            data, descriptors = self._outbox[0]
            try:
                sent = socket.send_fds(self._channel, [data], list(descriptors or ()))
            except BlockingIOError:
                loop.add_writer(self._channel, self._flush)
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:
                    loop.call_later(_CROWDED_S, self._flush)
                else:
                    self.hang_up()
                return
            _close_all(descriptors)
            if sent < len(data):
                self._outbox[0] = (data[sent:], None)
            else:
                self._outbox.popleft()
        if self.alive:
            loop.remove_writer(self._channel)

    def _listen(self) -> None:
        try:
            data = self._channel.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.hang_up()
            return
        for word in self._reader.feed(data):
            self._hear(word)

    def _hear(self, word: Word) -> None:
        if isinstance(word, Loaded | LoadFailed):
            if isinstance(word, Loaded):
                self.handlers += word.manifest["handlers"]
            self._answer(word)
        elif isinstance(word, AboutWorker):
            self._pass_on(word)
        elif isinstance(word, HooksRan):
            self._hooks_ran.set()

    def _answer(self, word: Loaded | LoadFailed) -> None:
        self._answers.append(word)
        self._answered.set()

    def _pass_on(self, word: AboutWorker) -> None:
        """Tell the object of a worker, unless the end of that worker is known already."""
        worker = self._workers.get(word.worker)
        if worker is None:
            return
        if isinstance(word, Spawned):
            worker.forked(word.pid)
        elif isinstance(word, Exited):
            worker.exited(word.status, word.rss_kb)
        else:
            worker.refused(word.error)

    def hang_up(self) -> None:
        """Give up a fork server that is gone, or does not react."""
        self.kill()
        # Ignored if it has answered already: the first answer counts.
        text = "the fork server ended while it imported the application"
        self._answer(LoadFailed("import", text, ""))
        self._on_down(self)


def _close_all(descriptors: Fds | None) -> None:
    for fd in descriptors or ():
        os.close(fd)
