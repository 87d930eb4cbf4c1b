"""Job socket: the pair of sockets from which all workers of a group take their jobs.

Used by both sides. The master sends a packet for each job; the kernel gives it to one of the processes that
wait for it. A large job travels as a descriptor of a file in memory, because a packet must fit into the
socket's buffer. Nothing here decodes a job.
"""

from __future__ import annotations

import array
import errno
import mmap
import os
import socket
import struct
import sys
import tempfile
from enum import IntEnum
from typing import NamedTuple

from pyworkers.ipc.allocator import keep_memory_of

_HEADER = struct.Struct("!QBH")
_LARGEST_NAME = 4096
LARGE = 32 * 1024
"""A longer payload travels by descriptor, because packets share the buffer of the socket."""
# Room for the jobs of a process that runs hundreds at once; a packet takes about 1 KiB. The system may allow
# less (net.core.wmem_max): then the master waits until workers have taken some.
_ROOM = 1 << 20
_LARGEST_PACKET = _HEADER.size + _LARGEST_NAME + LARGE
DONT_WAIT = socket.MSG_DONTWAIT
# Makes a named tuple in half the time of its class, which matches arguments to names.
_new = tuple.__new__
_FD_SPACE = socket.CMSG_SPACE(array.array("i").itemsize)
# A datagram has borders, too; macOS has no SEQPACKET.
_KIND_OF_SOCKET = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_DGRAM


class PacketKind(IntEnum):
    """What a worker does with a packet."""

    JOB = 1
    """Run this job; the payload is its bytes."""
    LOST = 2
    """Call the error handlers and hooks for a job that was lost with its worker; the payload is a Loss."""
    GRANTED = 3
    """Run this job, as its limits allow; the payload is its bytes."""
    RATED = 4
    """As JOB, and report its start."""
    GRANTED_RATED = 5
    """As GRANTED, and report its start."""
    SLOTS = 6
    """Make the jobs of cron slots; the payload is a SlotRequest."""


WORKER_TASKS = frozenset({PacketKind.LOST, PacketKind.SLOTS})
"""The kinds that are no jobs: no queue has them."""


class FileLostError(OSError):
    """The packet ``number`` of this ``kind`` was taken without its job."""

    def __init__(self, number: int, kind: int) -> None:
        super().__init__(errno.EMFILE, os.strerror(errno.EMFILE))
        self.number = number
        self.kind = kind


class Packet(NamedTuple):
    """A job on its way. ``number`` is the number of its delivery; ``queue`` is encoded."""

    number: int
    kind: int
    queue: bytes
    payload: bytes


class Unread(NamedTuple):
    """A packet whose payload is in a file, until ``read`` closes it."""

    number: int
    kind: int
    queue: bytes
    file: int

    def read(self) -> Packet:
        """The packet with its payload. Raises OSError."""
        with os.fdopen(self.file, "rb", buffering=0) as file:
            file.seek(0)
            payload = file.readall()
        keep_memory_of(payload)
        return Packet(self.number, self.kind, self.queue, payload)


def queue_with(queue: str, fence: int) -> bytes:
    """The queue of a packet with a fencing token, for an ordered queue; no name contains a NUL."""
    return f"{queue}\0{fence}".encode()


def queue_of(packet: Packet) -> str:
    """The name of the queue of a packet."""
    return packet.queue.partition(b"\0")[0].decode()


def fence_of(queue: bytes) -> int | None:
    """The fencing token in the queue of a packet."""
    fence = queue.partition(b"\0")[2]
    return int(fence) if fence else None


def pair() -> tuple[JobSocket, JobSocket]:
    """Two connected job sockets, the master's and the workers'. Raises OSError."""
    masters, workers = socket.socketpair(socket.AF_UNIX, _KIND_OF_SOCKET)
    masters.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
    return JobSocket(masters), JobSocket(workers)


class JobSocket:
    """One end; owns ``end``."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._send = end.send
        # Mapped memory: a bytearray would occupy all of it at once, in each process.
        self._buffer = mmap.mmap(-1, _LARGEST_PACKET, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._parts = [self._buffer]

    def fileno(self) -> int:
        """The descriptor; -1 once closed."""
        return self._socket.fileno()

    def send(self, number: int, kind: int, queue: bytes, payload: bytes) -> None:
        """Send a packet, without waiting. Raises BlockingIOError if the socket has no room, and OSError."""
        head = _HEADER.pack(number, kind, len(queue)) + queue
        if len(payload) <= LARGE:
            self._send(head + payload, DONT_WAIT)
            return
        keep_memory_of(payload)
        fd = _file_of(payload)
        try:
            socket.send_fds(self._socket, [head], [fd], DONT_WAIT)
        finally:
            os.close(fd)

    def receive(self, flags: int = 0) -> Packet | Unread | None:
        """Take the next packet, for which it waits; None at the end. Raises FileLostError and OSError.

        The payload of a large job is not read: that takes time, in which no claim would show who has it.
        With the flag ``DONT_WAIT``, it raises BlockingIOError if there is none. The end is reached once the
        other end is closed.
        """
        # One system call with room for a descriptor takes 0.2 µs longer than one without.
        try:
            length, ancillary, found, _ = self._socket.recvmsg_into(self._parts, _FD_SPACE, flags)
        except BlockingIOError:
            if flags & DONT_WAIT:
                raise
            # An event loop in another process has changed the socket, which all workers share: uvloop does.
            self._socket.setblocking(True)
            return self.receive()
        if not length:
            return None
        number, kind, name = _HEADER.unpack_from(self._buffer)
        end = _HEADER.size + name
        queue = self._buffer[_HEADER.size : end]
        if ancillary:
            [file] = array.array("i", ancillary[0][2])
            return Unread(number, kind, queue, file)
        if end == length and found & socket.MSG_CTRUNC:
            # The kernel drops the file of a large job if this process may open no other.
            raise FileLostError(number, kind)
        return _new(Packet, (number, kind, queue, self._buffer[end:length]))

    def withdraw(self) -> int | None:
        """Take the next packet, without waiting, for its number alone; None if there is none. Raises OSError.

        It reads no file of a large job, and needs no descriptor for it.
        """
        try:
            length = self._socket.recv_into(self._buffer, 0, DONT_WAIT)
        except BlockingIOError:
            return None
        number: int | None = _HEADER.unpack_from(self._buffer)[0] if length else None
        return number

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def memory_file(size: int) -> int:
    """The descriptor of a file in memory that has no name. Raises OSError."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("pyworkers", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, size)
    except OSError:
        os.close(fd)
        raise
    return fd


def _file_of(payload: bytes) -> int:
    fd = memory_file(0)
    try:
        view, at = memoryview(payload), 0
        while at < len(view):
            at += os.pwrite(fd, view[at:], at)
    except OSError:
        os.close(fd)
        raise
    return fd
