"""The application of the fault scenarios: jobs that note in the ledger when they begin and end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import termios
import time
from functools import cache
from pathlib import Path

from pyworkers import Worker, current_message
from tests.faults.ledger import CONCURRENCY_VARIABLE, LEDGER_VARIABLE, SERVER_VARIABLE, Ledger

worker = Worker()
ledger = Ledger(Path(os.environ[LEDGER_VARIABLE]))


@worker.job(queue="q", concurrency=int(os.environ.get(CONCURRENCY_VARIABLE, "3")), retry_in=lambda *_: 0.2)
def work(seconds: float = 0.0, failures: int = 0) -> None:
    """Take this long; fail this many times before."""
    message = current_message()
    ledger.note("start", message.jid, message.attempt, message.crash_count)
    if seconds:
        # Not for 0 seconds: that would give the processor away, and on a busy machine no job would be short.
        time.sleep(seconds)
    if message.attempt < failures:
        ledger.note("raise", message.jid, message.attempt)
        raise ValueError(f"failure {message.attempt}")
    ledger.note("end", message.jid)


@worker.job(queue="q", retry_in=lambda *_: 0.2)
async def wait(seconds: float = 0.0, failures: int = 0) -> None:
    """The same on a loop."""
    message = current_message()
    ledger.note("start", message.jid, message.attempt, message.crash_count)
    await asyncio.sleep(seconds)
    if message.attempt < failures:
        ledger.note("raise", message.jid, message.attempt)
        raise ValueError(f"failure {message.attempt}")
    ledger.note("end", message.jid)


@worker.job(
    queue="q",
    retry_in=lambda *_: 0.2,
    limits=[worker.limit("slots", concurrency=2), worker.limit("turns", rate=50)],
)
def hold(seconds: float, dies: bool = False, place: str = "") -> None:
    """Hold one of two slots for so long, or until the test has made the file ``place``; note if a third job
    does.
    """
    message = current_message()
    ledger.note("start", message.jid, message.attempt, message.crash_count)
    with contextlib.ExitStack() as files:
        for number in range(2):
            file = files.enter_context(ledger.path.with_name(f"slot{number}").open("a"))
            # The kernel releases it with the process, before the server can release the slot.
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
        else:
            ledger.note("over", message.jid)
        time.sleep(seconds)
        while place and not ledger.path.with_name(place).exists():
            time.sleep(0.005)
        if dies and not message.crash_count:
            os.kill(os.getpid(), signal.SIGKILL)
    ledger.note("end", message.jid)


@worker.job(queue="q", retry_in=lambda *_: 0.2)
def meet(place: str, most_s: float = 60.0) -> None:
    """Wait until the test has made the file ``place`` alongside the ledger."""
    message = current_message()
    ledger.note("start", message.jid, message.attempt, message.crash_count)
    deadline = time.monotonic() + most_s
    while not ledger.path.with_name(place).exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    ledger.note("end", message.jid)


@worker.job(queue="q", on_exhausted=lambda message, error: ledger.note("exhausted", message.jid, str(error)))
def fell(place: str) -> None:
    """Kill the master, once the test has made the file ``place``."""
    ledger.note("start", current_message().jid)
    while not ledger.path.with_name(place).exists():
        time.sleep(0.005)
    os.kill(_parent(os.getppid()), signal.SIGKILL)
    time.sleep(60)


@worker.job(queue="q")
def strike(server: str) -> None:
    """Kill the master of this server as soon as another job is in the socket of the workers."""
    jid = current_message().jid
    ledger.note("start", jid)
    if os.environ[SERVER_VARIABLE] == server and _jobs_stand_in_socket():
        ledger.note("strike", jid)
        os.kill(_parent(os.getppid()), signal.SIGKILL)
        time.sleep(60)
    ledger.note("end", jid)


def _parent(pid: int) -> int:
    """The master is the parent of the fork server."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@cache
def _job_socket() -> int:
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as end:
            if end.type == socket.SOCK_SEQPACKET and not _hung_up(end):
                return int(path.name)
    raise LookupError("this worker has no job socket")


def _hung_up(end: socket.socket) -> bool:
    """True for the spare end of ``Intake``, which has no other end."""
    poll = select.poll()
    poll.register(end, 0)
    return bool(poll.poll(0))


def _jobs_stand_in_socket() -> bool:
    size: int = struct.unpack("i", fcntl.ioctl(_job_socket(), termios.FIONREAD, bytes(4)))[0]
    return size > 0


@worker.job(queue="q")
def tell_time() -> None:
    """Note what the clock of the worker says."""
    ledger.note("end", current_message().jid, time.time())


@worker.job(queue="q")
def chat() -> None:
    """Print a little."""
    jid = current_message().jid
    ledger.note("start", jid)
    print("something", jid)
    ledger.note("end", jid)


@worker.job(queue="other", concurrency=1)
def elsewhere() -> None:
    """A job of a second queue."""
    jid = current_message().jid
    ledger.note("start", jid)
    ledger.note("end", jid)
