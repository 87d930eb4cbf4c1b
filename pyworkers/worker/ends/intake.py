"""Intake: how a worker process waits for its jobs, beside the other workers of its group.

Runs in the worker process. In a busy group, workers wait in turn: the kernel wakes the one that has waited
longest. In a group that has little to do, they wait in rank: it wakes the first in rank of those that wait,
so that one process runs most jobs, with warm caches. To wait in rank costs one system call more, and each
packet costs some time for each process that has a rank and runs a job. Processes of the other modes have no
rank: the first would have all jobs, and one core.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress

from pyworkers.ipc.jobsocket import DONT_WAIT, JobSocket, Packet, Unread, pair


class Intake:
    """The workers' end ``fd`` of the job socket, in one process; ``ranked`` if it is to have a rank."""

    def __init__(self, fd: int, ranked: bool) -> None:
        """Raises OSError."""
        end = socket.socket(fileno=fd)
        self._jobs = JobSocket(end)
        # Opened now, so that ``detach`` works also when no descriptor is left.
        masters, self._nothing = pair()
        masters.close()
        self._rank = Rank(end) if ranked and Rank.available else None
        self._in_turn = True

    def fileno(self) -> int:
        """The descriptor of the job socket."""
        return self._jobs.fileno()

    def take(self, in_turn: bool) -> Packet | Unread | None:
        """Take the next packet, for which it waits; None at the end, or once detached.

        Without a rank, it waits in turn. Raises FileLostError and OSError, as ``JobSocket.receive`` does.
        """
        if in_turn is not self._in_turn:
            self._change(in_turn)
        if in_turn or (rank := self._rank) is None:
            return self._jobs.receive()
        return rank.take()

    def take_now(self) -> Packet | Unread | None:
        """Take the next packet, as ``take`` does. Raises BlockingIOError if there is none."""
        return self._jobs.receive(DONT_WAIT)

    def _change(self, in_turn: bool) -> None:
        self._in_turn = in_turn
        if (rank := self._rank) is not None:
            try:
                rank.leave() if in_turn else rank.enter()
            except OSError:  # a limit (epoll(7)), or a sandbox
                # A signal handler must not find it closed.
                self._rank = None
                rank.close()

    def detach(self) -> None:
        """Replace this process' end of the socket by one without packets: it takes none from now on.

        Safe in a signal handler: a packet that was received before is not lost, and the other processes that
        share the socket notice nothing. A wait in rank may still end with a packet.
        """
        with suppress(OSError):
            os.dup2(self._nothing.fileno(), self._jobs.fileno(), inheritable=False)
        if self._rank is not None:
            self._rank.end(self._nothing)

    def close(self) -> None:
        """Close the descriptors."""
        self._jobs.close()
        self._nothing.close()
        if self._rank is not None:
            self._rank.close()


class Rank:
    """A place among the processes that wait for the socket ``end``, kept from one wait to the next.

    Of those that wait, the kernel wakes the one that has had its place for longest: EPOLLEXCLUSIVE in
    epoll_ctl(2), seen with Linux 6.
    """

    available = hasattr(select, "EPOLLEXCLUSIVE")

    def __init__(self, end: socket.socket) -> None:
        """Raises OSError."""
        self._jobs = JobSocket(end.dup())
        self._epoll = select.epoll()
        self._ended = False

    def enter(self) -> None:
        """Take the last place. Raises OSError."""
        self._epoll.register(self._jobs, select.EPOLLIN | select.EPOLLEXCLUSIVE)

    def leave(self) -> None:
        """Give up the place. Raises OSError."""
        self._epoll.unregister(self._jobs)

    def take(self) -> Packet | Unread | None:
        """Take the next packet, for which it waits; None at the end. Raises FileLostError and OSError."""
        while not self._ended:
            self._epoll.poll()
            # Also if it has ended meanwhile: the kernel may have woken this process alone for a packet.
            with suppress(BlockingIOError):
                return self._jobs.receive(DONT_WAIT)
        return None

    def end(self, closed: JobSocket) -> None:
        """End the wait under way, by an end without another one. Safe in a signal handler."""
        self._ended = True
        with suppress(OSError):
            self._epoll.register(closed, select.EPOLLIN)

    def close(self) -> None:
        """Close the descriptors."""
        self._epoll.close()
        self._jobs.close()
