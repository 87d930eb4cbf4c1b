"""HandOut: the socket from which the workers of one group take their jobs, and their pipe for outcomes.

Runs in the master's event loop. Every worker takes from the socket when it has room; the kernel wakes one
that waits. ``HandOut`` sends packets, and takes back those that no worker has taken. ``OutcomePipe`` reads
the frames of all workers. ``LookAhead`` says how many jobs to fetch beyond those that idle workers can start.
``Missing`` finds, at the looks of the table of jobs, the jobs that a worker took without a claim, and the
workers that take none although there is one. It settles nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterable

from pyworkers import logs
from pyworkers.failpoints import hit
from pyworkers.ipc import jobsocket
from pyworkers.ipc.frames import Frame, FrameReader
from pyworkers.ipc.jobsocket import JobSocket
from pyworkers.ipc.page import ATTENTION
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.worker import Limits, WorkerProcess

# Until another attempt to send after the system refused a descriptor.
_REFUSED_S = 0.05

log = logs.get_logger()


class HandOut:
    """The job socket, and the deliveries for which it has no room, in ``unsent``."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._ours, self._theirs = jobsocket.pair()
        self._unsent: deque[Delivery] = deque()
        self._names: dict[str, bytes] = {}
        self._retry: asyncio.TimerHandle | None = None

    @property
    def workers_end(self) -> int:
        """The descriptor that workers inherit."""
        return self._theirs.fileno()

    @property
    def closed(self) -> bool:
        """True once the socket is closed."""
        return self._ours.fileno() < 0

    def set_fence(self, queue: str, fence: int) -> None:
        """Send this fencing token with the jobs of an ordered queue."""
        self._names[queue] = jobsocket.queue_with(queue, fence)

    def offer(self, delivery: Delivery) -> None:
        """Send a delivery, now or as soon as there is room."""
        if self._unsent or not self._send(delivery):
            self._unsent.append(delivery)

    def offer_first(self, deliveries: list[Delivery]) -> None:
        """Send deliveries that were taken back, before those that were never sent."""
        self._unsent.extendleft(reversed(deliveries))
        self._send_rest()

    def send(self, delivery: Delivery, socket: JobSocket) -> None:
        """Send a delivery through this socket. Raises OSError."""
        queue = self._names.get(delivery.queue) or self._name(delivery.queue)
        socket.send(delivery.number, delivery.kind, queue, delivery.raw)

    def _name(self, queue: str) -> bytes:
        name = self._names[queue] = queue.encode()
        return name

    def drain(self) -> list[int]:
        """Take every packet that no worker has taken out of the socket; their numbers, the oldest first."""
        numbers = []
        if self._theirs.fileno() >= 0:
            while (number := self._theirs.withdraw()) is not None:
                numbers.append(number)
        return numbers

    def take_unsent(self) -> list[Delivery]:
        """Remove the deliveries that were never sent, the oldest first."""
        unsent = list(self._unsent)
        self._unsent.clear()
        return unsent

    def close(self) -> None:
        """Close both ends; a second call does nothing."""
        if self._retry is not None:
            self._retry.cancel()
        if not self.closed:
            self._loop.remove_writer(self._ours)
        self._ours.close()
        self._theirs.close()

    def _send(self, delivery: Delivery) -> bool:
        """Send a delivery; False if that is not possible now."""
        hit("before_dispatch")
        # As ``send``, without a call: every job passes here.
        queue = self._names.get(delivery.queue) or self._name(delivery.queue)
        try:
            self._ours.send(delivery.number, delivery.kind, queue, delivery.raw)
        except BlockingIOError:
            self._loop.add_writer(self._ours, self._send_rest)
            return False
        except OSError:
            # No descriptor, or too many of them in sockets (ETOOMANYREFS).
            if self._retry is None:
                self._retry = self._loop.call_later(_REFUSED_S, self._send_refused)
            return False
        return True

    def _send_refused(self) -> None:
        self._retry = None
        self._send_rest()

    def _send_rest(self) -> None:
        if self.closed:
            return
        self._loop.remove_writer(self._ours)
        while self._unsent and self._send(self._unsent[0]):
            self._unsent.popleft()


# The capacity of a pipe.
_READ = 65_536


class OutcomePipe:
    """Calls ``on_frame`` for each message. Workers inherit ``write_end``, which stays open here.

    After each read, ``rest_s`` returns for how many seconds the next messages may wait.
    """

    def __init__(
        self, group: str, on_frame: Callable[[Frame], None], rest_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Raises OSError."""
        self._group = group
        self._on_frame = on_frame
        self._rest_s = rest_s
        self._resting: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._skipped = 0
        self._fd, self.write_end = os.pipe()
        os.set_blocking(self._fd, False)
        self._listen()

    def drain(self) -> None:
        """Read everything that the workers have written so far."""
        # One piece is all that a pipe holds. A job that writes garbage may fill it as fast as this reads.
        if self._fd >= 0:
            self._read()

    def forget(self, worker: int) -> None:
        """Drop the beginning of an outcome that a dead worker has not finished."""
        self._reader.forget(worker)

    def close(self) -> None:
        """Close both ends; a second call does nothing."""
        if self._fd >= 0:
            if self._resting is not None:
                self._resting.cancel()
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            os.close(self.write_end)
            self._fd = -1

    def _listen(self) -> None:
        # One piece for each call: workers with large outcomes write as fast as this reads, and reading until
        # the pipe is empty would block the loop.
        self._loop.add_reader(self._fd, self._read_and_rest)

    def _read_and_rest(self) -> None:
        self._read()
        if self._fd >= 0 and (rest_s := self._rest_s()) > 0:
            self._loop.remove_reader(self._fd)
            self._resting = self._loop.call_later(rest_s, self._listen)

    def _read(self) -> None:
        """Read one piece, if there is any."""
        try:
            data = os.read(self._fd, _READ)
        except BlockingIOError:
            return
        for frame in self._reader.feed(data):
            self._on_frame(frame)
        if self._reader.skipped != self._skipped:
            skipped, self._skipped = self._reader.skipped - self._skipped, self._reader.skipped
            log.error("outcomes.invalid", queue=self._group, bytes=skipped, hint="a job wrote into the pipe")


# The weight of the newest job in the mean.
_WEIGHT = 1 / 16
# The mean at first: high, so that a good number of short jobs must have ended before any is fetched ahead.
_UNKNOWN_MS = 100.0
# About an exchange with Redis.
_SHORT_MS = 1.0
# Reports give whole milliseconds; 0 is anything below a half.
_SHORTEST_MS = 0.2
# An exchange costs as much as several short jobs. A few workers have this many of them ahead, if they run
# them in a millisecond. Measured with one to four workers.
_LEAST = 20
# Jobs that the workers end in a millisecond: below this number they need nothing ahead.
_FEW = 3.0
# The same for jobs that are longer than a millisecond: at a lower rate, the next exchange comes early enough.
# Ten jobs that share two cores, and use 1 ms each, are about here: 1.6 of them end in a millisecond.
_FEW_LONGER = 1.0
# Milliseconds for which jobs are fetched ahead then, and so the time that one waits for a worker.
_AHEAD_MS = 12.0
# The outcomes of these jobs wait as long at least and at most: timers count milliseconds.
_SHORTEST_REST_MS = 1.0
_LONGEST_REST_MS = 6.0


class LookAhead:
    """The mean length of the jobs, and what follows from it: how many to fetch ahead. Pure.

    While jobs are very short, a worker would wait for the next exchange with Redis for longer than its job
    took. While longer jobs end in each millisecond, the room of the ones that end within an exchange would
    stay empty. In both cases some are fetched ahead. Workers that have a next job need no exchange at once:
    so the outcomes of longer jobs may wait for each other.
    """

    def __init__(self) -> None:
        self._mean_ms = _UNKNOWN_MS

    def ended(self, elapsed_ms: int) -> None:
        """Note the length of a job."""
        self._mean_ms += (elapsed_ms - self._mean_ms) * _WEIGHT

    def reset(self) -> None:
        """Fetch nothing ahead until jobs have proved to be short again."""
        self._mean_ms = _UNKNOWN_MS

    @property
    def short(self) -> bool:
        """True if the jobs take less than a millisecond."""
        return self._mean_ms <= _SHORT_MS

    def jobs(self, room: int) -> int:
        """The number of jobs to fetch ahead, if ``room`` jobs run at once.

        At most twice as many. Of short ones, as many as end in a millisecond, but at most twice as many or
        ``_LEAST``, whichever is more.
        """
        per_ms = self._per_ms(room)
        if self.short:
            return 0 if per_ms < _FEW else min(max(2 * room, _LEAST), int(per_ms))
        return 0 if per_ms < _FEW_LONGER else min(2 * room, int(_AHEAD_MS * per_ms))

    def rest_s(self, room: int, ahead: int) -> float:
        """Seconds for which outcomes may wait, if ``room`` jobs run at once and ``ahead`` are fetched ahead.

        As long as the jobs ahead last: the exchange with the outcomes read before brings the next jobs.
        """
        rest_ms = ahead / self._per_ms(room) if room > 0 and ahead > 0 else 0.0
        return 0.0 if rest_ms < _SHORTEST_REST_MS else min(rest_ms, _LONGEST_REST_MS) / 1000

    def _per_ms(self, room: int) -> float:
        """The number of jobs that end in a millisecond."""
        return room / max(self._mean_ms, _SHORTEST_MS)


# For how long a job is neither in the socket nor claimed until it is lost, if a worker has died. Another
# worker may have taken it, and wait for a processor before it claims it.
_MISSING_S = 0.5


class Missing:
    """What the last looks have found, and since when."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._since: dict[int, float] = {}
        self._idle: dict[WorkerProcess, tuple[tuple[int, int], float]] = {}
        self.died_at = 0.0
        """The time of the last end of a worker, in seconds of the monotonic clock."""
        self.reason = ""
        """The reason of that end."""

    @property
    def any(self) -> bool:
        """True if a job is missing."""
        return bool(self._since)

    def died(self, reason: str) -> None:
        """Note that a worker has ended: it may have taken a job without a claim."""
        self.died_at, self.reason = time.monotonic(), reason

    def forget(self) -> None:
        """Forget the findings: every job has a worker."""
        self._since.clear()
        self._idle.clear()

    def overdue(self, missing: list[Delivery]) -> list[Delivery]:
        """The lost jobs among these, which were taken without a claim: nothing has claimed them for too long.

        A worker claims a job within microseconds. If one has died since, it took the job with it; else a
        worker may be suspended between the two steps, and is killed for that: see ``end_stalled``.
        """
        now = time.monotonic()
        since = {d.number: self._since.get(d.number, now) for d in missing}
        lost = [d for d in missing if now - since[d.number] >= self._patience_s(d)]
        for delivery in lost:
            del since[delivery.number]
        self._since = since
        return lost

    def _patience_s(self, delivery: Delivery) -> float:
        return _MISSING_S if self.died_at >= delivery.handed_at else 2 * self._limits.stalled_s

    def end_stalled(self, serving: Iterable[WorkerProcess], *, ask: bool = False) -> None:
        """Kill the idle workers that for long have neither taken a job nor answered, while there was one.

        ``ask``: request an answer. One that waits in vain gives it, because it is not suspended.
        """
        now = self._loop.time()
        idle = {worker for worker in serving if len(worker.unfinished()) < worker.slots}
        before, self._idle = self._idle, {}
        for worker in idle:
            signs = worker.jobs_done, worker.page.answers
            seen, since = before.get(worker, (signs, now))
            if seen != signs:
                since = now
            self._idle[worker] = signs, since
            if now - since > self._limits.stalled_s:
                worker.fail("did not take its job")
        if ask:
            for worker in self._idle:
                worker.signal(ATTENTION)
