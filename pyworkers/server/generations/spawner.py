"""Spawner: the master's handle on one fork server.

Runs in the master's event loop. It sends messages and descriptors to the fork server, and makes each message
about a worker an event of its group. A fork server is one *generation* of the
application's code; a reload makes a second Spawner.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import socket
from collections import deque
from collections.abc import Callable

from pyworkers.ipc import control
from pyworkers.ipc.control import (
    AboutWorker,
    ControlMessage,
    Exited,
    HooksRan,
    Identify,
    Loaded,
    LoadFailed,
    RunHooks,
    Spawn,
    Spawned,
)
from pyworkers.protocol.outcome import Reports
from pyworkers.server.generations.launch import Launched
from pyworkers.server.generations.reaper import Died, ForkRefused, Reaper, WorkerForked, WorkerSpec

Fds = tuple[int, ...]
# The kernel limits the descriptors in flight (ETOOMANYREFS); the fork server receives some in this time.
_CROWDED_S = 0.05


class Spawner:
    """The fork server of one generation; ``on_down`` is called when it has ended, or is given up."""

    def __init__(self, launched: Launched, reaper: Reaper, on_down: Callable[[Spawner], None]) -> None:
        self._launched = launched
        self._channel = launched.channel
        self._reaper = reaper
        self._on_down = on_down
        self._reader = control.LineReader()
        self._outbox: deque[tuple[bytes, Fds | None]] = deque()
        self._numbers = itertools.count(1)
        self._workers: dict[int, WorkerSpec] = {}
        self._released = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Loaded | LoadFailed] = self._loop.create_future()
        self._hooks_ran = asyncio.Event()
        self.process = launched.process
        self.alive = True
        """False once the channel is closed: it forks no more workers."""
        self.handlers = [""]
        """The names of the application's handlers by their numbers in outcomes; 0 is none."""
        self.reports = Reports(self.handlers)
        """Reads the reports of its workers."""
        reaper.adopt(self.process)
        self._loop.add_reader(self._channel, self._read)

    async def loaded(self) -> Loaded | LoadFailed:
        """Wait for the result of the import."""
        return await asyncio.shield(self._answer)

    def spawn(self, worker: WorkerSpec, descriptors: Fds) -> int:
        """Request a worker; returns its number, which is unique in this fork server.

        The descriptors are closed here once they are sent.
        """
        number = next(self._numbers)
        self._workers[number] = worker
        self._post(Spawn(number, worker.group, worker.member, worker.slots, worker.mode), descriptors)
        return number

    def expect(self, pid: int, worker: WorkerSpec) -> None:
        """Have the reaper report the end of a worker if this fork server ends before it."""
        self._reaper.expect(pid, worker)

    def forget(self, number: int) -> None:
        """Ignore all messages about a worker from now on: its end is known."""
        self._reaper.forget(self._workers.pop(number))
        self._released.set()

    async def unused(self) -> None:
        """Wait until all its workers have ended."""
        while self._workers:
            self._released.clear()
            await self._released.wait()

    async def run_hooks(self, kind: str) -> None:
        """Run the application's hooks of one kind in a separate process, and wait for its end."""
        self._hooks_ran.clear()
        self._post(RunHooks(kind), None)
        if self.alive:
            await self._hooks_ran.wait()

    def identify(self, identity: str) -> None:
        """Set the identity that workers log, for all workers forked from now on."""
        self._post(Identify(identity), None)

    def close(self) -> None:
        """Close the channel: the fork server ends by itself; its workers continue."""
        if not self.alive:
            return
        self.alive = False
        self._hooks_ran.set()
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)
        self._channel.close()
        for _, descriptors in self._outbox:
            _close_all(descriptors)
        self._outbox.clear()

    def kill(self) -> None:
        """End the process now."""
        self.close()
        self._launched.kill()

    def give_up(self) -> None:
        """End a fork server that has exited, or does not respond, and report it."""
        self.kill()
        text = "the fork server ended while it imported the application"
        self._answered(LoadFailed("import", text, ""))
        self._on_down(self)

    # Messages to the fork server

    def _post(self, message: ControlMessage, descriptors: Fds | None) -> None:
        if not self.alive:
            _close_all(descriptors)
            return
        self._outbox.append((control.dump(message), descriptors))
        self._flush()

    def _flush(self) -> None:
        while self._outbox and self.alive:
            data, descriptors = self._outbox[0]
            try:
                sent = socket.send_fds(self._channel, [data], list(descriptors or ()))
            except BlockingIOError:
                self._loop.add_writer(self._channel, self._flush)
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:
                    self._loop.call_later(_CROWDED_S, self._flush)
                else:
                    self.give_up()
                return
            _close_all(descriptors)
            if sent < len(data):
                self._outbox[0] = (data[sent:], None)
            else:
                self._outbox.popleft()
        if self.alive:
            self._loop.remove_writer(self._channel)

    # Messages from the fork server

    def _read(self) -> None:
        try:
            data = self._channel.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.give_up()
            return
        for message in self._reader.feed(data):
            self._receive(message)

    def _receive(self, message: ControlMessage) -> None:
        if isinstance(message, Loaded | LoadFailed):
            if isinstance(message, Loaded):
                self.handlers += message.manifest["handlers"]
            self._answered(message)
        elif isinstance(message, AboutWorker):
            self._pass_on(message)
        elif isinstance(message, HooksRan):
            self._hooks_ran.set()

    def _answered(self, message: Loaded | LoadFailed) -> None:
        """Note the result of the import; the first one counts."""
        if not self._answer.done():
            self._answer.set_result(message)

    def _pass_on(self, message: AboutWorker) -> None:
        """Make a message an event of its worker, unless the worker's end is already known."""
        worker = self._workers.get(message.worker)
        if worker is None:
            return
        if isinstance(message, Spawned):
            self.expect(message.pid, worker)
            worker.put(WorkerForked(worker.member, message.pid))
        elif isinstance(message, Exited):
            worker.put(Died(worker.member, message.status, message.rss_kb))
        else:
            worker.put(ForkRefused(worker.member, message.error))


def _close_all(descriptors: Fds | None) -> None:
    for fd in descriptors or ():
        os.close(fd)
