"""HandOut: the socket from which the workers of one group take their jobs.

Runs in the master's event loop. Every worker takes from it when it has room; the kernel wakes one that waits.
It knows no job: it sends packets, and takes back those that no worker has taken.
"""

from __future__ import annotations

import asyncio
from collections import deque

from pyworkers.failpoints import hit
from pyworkers.ipc import jobsocket
from pyworkers.ipc.jobsocket import JobSocket
from pyworkers.server.pool.delivery import Delivery

# Until another attempt to send after the system refused a descriptor.
_REFUSED_S = 0.05


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

    def _send_refused(self) -> None:
        self._retry = None
        self._send_rest()

    def _send_rest(self) -> None:
        if self.closed:
            return
        self._loop.remove_writer(self._ours)
        while self._unsent and self._send(self._unsent[0]):
            self._unsent.popleft()
