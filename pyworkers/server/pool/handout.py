"""HandOut: hands the jobs of one group to the first worker that is free.

Runs in the master's event loop. All jobs go into one socket, from which every worker takes when it has room;
the kernel wakes one that waits. The master learns which worker has a job only when it looks into the pages.

    offer ──► job socket ──► a worker takes it and claims it in its page ──► outcome
                  │ not taken after 50 ms, and all workers are busy
                  ▼
              back to the head of the queue
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping

from pyworkers.failpoints import hit
from pyworkers.ipc import jobsocket
from pyworkers.ipc.jobsocket import JobSocket
from pyworkers.server.pool.cpus.scheduling import Scheduling
from pyworkers.server.pool.crew import Crew
from pyworkers.server.pool.delivery import Delivery, DeliveryState
from pyworkers.server.pool.limits import Limits
from pyworkers.server.pool.lookahead import LookAhead
from pyworkers.server.pool.missing import Missing
from pyworkers.server.pool.worker import Worker

# Until a look for a job that is not taken: one ahead of the workers, and one for which a worker is idle.
_AHEAD_S, _IDLE_S = 0.05, 1.0
# Until another attempt to send after the system refused a descriptor.
_REFUSED_S = 0.05
_HELD, _OFFERED = DeliveryState.HELD, DeliveryState.OFFERED


class HandOut:
    """The jobs without an outcome, in ``open``, and the socket from which the ``crew`` takes them.

    ``freed`` is called when there is room for another job; ``drain`` to read the outcomes in the pipe;
    ``untaken`` with jobs that are to be given back; ``lost`` with a job that a worker took before it ended,
    and the reason of that end.
    """

    def __init__(
        self,
        crew: Crew,
        scheduling: Scheduling,
        limits: Limits,
        freed: Callable[[], None],
        drain: Callable[[], None],
        untaken: Callable[[list[Delivery]], None],
        lost: Callable[[Delivery, str], None],
    ) -> None:
        """Raises OSError."""
        self._crew = crew
        self._freed = freed
        self._read_outcomes = drain
        self._untaken = untaken
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._ours, self._theirs = jobsocket.pair()
        self._open: dict[int, Delivery] = {}
        self._unsent: deque[Delivery] = deque()
        self._names: dict[str, bytes] = {}
        self._serving: set[Worker] = set()
        self._leaving: set[int] = set()
        """The jobs of workers that take no others: they use none of the room."""
        self._suspects: deque[Delivery] = deque()
        self._alone: set[int] = set()
        """The suspects that wait, and those that have a worker of their own."""
        self._room = 0
        self._ahead = LookAhead()
        self._scheduling = scheduling
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._retry: asyncio.TimerHandle | None = None
        self._missing = Missing(limits)

    @property
    def open(self) -> Mapping[int, Delivery]:
        """All jobs and errands without an outcome, by number."""
        return self._open

    @property
    def free(self) -> int:
        """The number of jobs to fetch; negative if jobs wait for a worker."""
        free = self._ahead.jobs(self._room) - self._surplus
        # Suspects use no room, but a queue full of them is not to be fetched as a whole.
        return free if len(self._suspects) <= self._room else min(0, free)

    @property
    def rest_s(self) -> float:
        """Seconds for which outcomes may wait, because every worker has a next job."""
        return self._ahead.rest_s(self._room, self._surplus)

    @property
    def idle(self) -> bool:
        """True if a worker can take another job at once."""
        return self._surplus < 0

    @property
    def _surplus(self) -> int:
        """How many more jobs there are than workers can run at once; negative if some are idle."""
        return len(self._open) - len(self._leaving) - len(self._alone) - self._room

    @property
    def workers_end(self) -> int:
        """The descriptor that workers inherit."""
        return self._theirs.fileno()

    def offer(self, delivery: Delivery) -> None:
        """Hand out a job."""
        delivery.hand_out(time.monotonic())
        delivery.state = _OFFERED
        self._open[delivery.number] = delivery
        if self._unsent or not self._send(delivery):
            self._unsent.append(delivery)
        if self._timer is None or not self._soon:
            self._look_later()

    def send(self, delivery: Delivery, socket: JobSocket) -> None:
        """Send a job through this socket. Raises OSError."""
        queue = self._names.get(delivery.queue) or self._name(delivery.queue)
        socket.send(delivery.number, delivery.kind, queue, delivery.raw)

    def ended(self, number: int, elapsed_ms: int) -> Delivery | None:
        """Remove a delivery that has an outcome; None if it is not known any more."""
        delivery = self._open.pop(number, None)
        if delivery is not None:
            self._ahead.ended(elapsed_ms)
            if self._leaving or self._alone:
                self._forget(number)
        return delivery

    def drop(self, delivery: Delivery) -> None:
        """Remove a delivery whose end is decided here."""
        self._open.pop(delivery.number, None)
        self._forget(delivery.number)

    def _forget(self, number: int) -> None:
        self._leaving.discard(number)
        self._alone.discard(number)

    def set_apart(self, suspect: Delivery) -> None:
        """Keep a job for a worker of its own, which asks for it by ``next_suspect``."""
        suspect.state = _HELD
        self._open[suspect.number] = suspect
        self._alone.add(suspect.number)
        self._suspects.append(suspect)

    def next_suspect(self) -> Delivery | None:
        """The suspect that has waited longest; None if none waits."""
        if not self._suspects:
            return None
        self._freed()
        return self._suspects.popleft()

    def take_back(self, wanted: Callable[[Delivery], bool]) -> list[Delivery]:
        """Remove the wanted ones of those that no worker has taken, oldest first."""
        untaken = self._withdraw_all()
        found = [delivery for delivery in (*self._suspects, *untaken) if wanted(delivery)]
        for delivery in found:
            self.drop(delivery)
        self._suspects = deque(delivery for delivery in self._suspects if delivery.number in self._open)
        self._send_again([delivery for delivery in untaken if delivery.number in self._open])
        return found

    # The workers

    def admit(self, worker: Worker) -> None:
        """Count the room of a worker that takes jobs from now on."""
        self._serving.add(worker)
        self._room += worker.slots
        # It may have taken a job before the master had its READY frame.
        self._leaving.difference_update(worker.claims())
        self._freed()

    def withdraw(self, worker: Worker) -> None:
        """Count on this worker no more."""
        if worker in self._serving:
            self._serving.remove(worker)
            self._room -= worker.slots
            # It may take one more job before it knows: then the look notes it.
            self._note_leaving(self._crew.claims())
            self._look_later(soon=True)

    def _note_leaving(self, claims: Mapping[int, Worker]) -> None:
        others, before = self._open.keys() - self._alone, len(self._leaving)
        self._leaving = {n for n in others if n in claims and claims[n] not in self._serving}
        if len(self._leaving) > before:
            self._freed()

    def died(self, reason: str) -> None:
        """Note that a worker has ended: it may have taken a job without a claim."""
        self._missing.died(reason)
        if self._open:
            self._look_later(soon=True)

    def close(self) -> None:
        """Close the socket; a second call does nothing."""
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        if self._ours.fileno() >= 0:
            self._loop.remove_writer(self._ours)
        self._ours.close()
        self._theirs.close()
        self._scheduling.close()

    # The socket

    def _send(self, delivery: Delivery) -> bool:
        """Send a job; False if the socket has no room now."""
        hit("before_dispatch")
        try:
            self.send(delivery, self._ours)
        except BlockingIOError:
            self._loop.add_writer(self._ours, self._send_rest)
            return False
        except OSError:
            # No descriptor, or too many of them in sockets (ETOOMANYREFS).
            if self._retry is None:
                self._retry = self._loop.call_later(_REFUSED_S, self._send_refused)
            return False
        return True

    def set_fence(self, queue: str, fence: int) -> None:
        """Send this fencing token with the jobs of an ordered queue."""
        self._names[queue] = jobsocket.queue_with(queue, fence)

    def _name(self, queue: str) -> bytes:
        name = self._names[queue] = queue.encode()
        return name

    def _send_refused(self) -> None:
        self._retry = None
        self._send_rest()

    def _send_rest(self) -> None:
        if self._ours.fileno() < 0:
            return
        self._loop.remove_writer(self._ours)
        while self._unsent and self._send(self._unsent[0]):
            self._unsent.popleft()

    def _send_again(self, deliveries: list[Delivery]) -> None:
        self._unsent.extendleft(reversed(deliveries))
        self._send_rest()
        if deliveries:
            self._look_later()

    def _withdraw_all(self) -> list[Delivery]:
        """Take back every job that no worker has taken, oldest first."""
        found = [*self._drain(), *self._unsent]
        self._unsent.clear()
        return found

    def _drain(self) -> list[Delivery]:
        """Take every job that no worker has taken out of the socket, oldest first."""
        if self._theirs.fileno() < 0:
            return []
        numbers = []
        while (number := self._theirs.withdraw()) is not None:
            numbers.append(number)
        return [self._open[number] for number in numbers if number in self._open]

    # Jobs that are not taken

    def _look_later(self, soon: bool = False) -> None:
        """Look in a moment for jobs that no worker takes."""
        if self._ours.fileno() < 0:
            return
        soon = soon or self._surplus > 0
        if self._timer is not None:
            if self._soon or not soon:
                return
            self._timer.cancel()
        self._soon = soon
        self._timer = self._loop.call_later(_AHEAD_S if soon else _IDLE_S, self._look)

    def _look(self) -> None:
        self._timer = None
        many = self._scheduling.look(self._ahead.short, time.monotonic())
        if self._look_for_untaken() or many:
            self._look_later(soon=self._missing.any)

    def _look_for_untaken(self) -> bool:
        """Deal with the jobs that no worker has claimed; False if there are none."""
        claims = self._crew.claims()
        self._note_leaving(claims)
        known = self._alone | claims.keys()
        waiting = [delivery for delivery in self._open.values() if delivery.number not in known]
        if not waiting:
            self._missing.forget()
            return False
        surplus = self._surplus > 0
        limit = time.monotonic() - (_AHEAD_S if surplus else _IDLE_S)
        oldest = min(delivery.handed_at for delivery in waiting)
        if oldest <= max(limit, self._missing.died_at):
            self._find(surplus, limit)
        return bool(self._open)

    def _find(self, surplus: bool, limit: float) -> None:
        """Give back the jobs in the socket if all workers are busy, and find those that are not in it."""
        stood = self._drain()
        # Only now, because workers may have taken some meanwhile. The outcomes last, because a worker writes
        # that of a job before it claims the next: a job that is missing after this is taken and not claimed.
        claimed = self._crew.claims().keys()
        self._read_outcomes()
        untaken = [*stood, *self._unsent]
        self._unsent.clear()
        known = {delivery.number for delivery in untaken} | self._alone | claimed
        missing = [d for d in self._open.values() if d.number not in known]
        for delivery in self._missing.overdue(missing):
            del self._open[delivery.number]
            self._lost(delivery, self._missing.reason)
        if missing:
            self._missing.end_stalled(self._serving, ask=True)
        # A marked job waits for its worker here: given back, it would only be kept back once more.
        late = [d for d in untaken if not (d.errand or d.marked)] if surplus else []
        if not any(d.handed_at <= limit for d in late):
            late = []
        # All of them, because those given back later would come before these.
        for delivery in late:
            del self._open[delivery.number]
        self._send_again([d for d in untaken if d.number in self._open])
        if late:
            self._ahead.reset()
            self._untaken(late)
        elif stood and not surplus:
            self._missing.end_stalled(self._serving)
