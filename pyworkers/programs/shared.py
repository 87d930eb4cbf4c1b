"""Shared: what the import of the application leaves open, which all workers share after the fork.

Runs in the fork server. It closes nothing: it names what is there, because two workers that write to one
connection of a database read each other's replies.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pyworkers import programs

_FOLDER = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
# Devices without state.
_STATELESS = {
    f"/dev/{name}"
    for name in ("full", "null", "ptmx", "random", "stderr", "stdin", "stdout", "tty", "urandom", "zero")
}
# Terminals and shared memory.
_SHARED_ON_PURPOSE = ("/dev/pts/", "/dev/shm/")
# Workers do share it (trackers.py).
_TRACKER = "multiprocessing.resource_tracker"
_MOST = 10

Descriptors = frozenset[tuple[int, int]]
"""The number and the inode of each descriptor."""


class PatchedError(Exception):
    """A library has replaced what forks and signals of this process need."""


def check_unpatched() -> None:
    """Raise PatchedError if gevent or eventlet has patched this process."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    name = ""
    if gevent is not None and any(map(gevent.is_module_patched, ("os", "signal", "socket", "threading"))):
        name = "gevent"
    elif eventlet is not None and any(map(eventlet.is_monkey_patched, ("os", "socket", "thread"))):
        name = "eventlet"
    if name:
        text = f"the application is patched by {name}, which workers cannot run with"
        raise PatchedError(f"{text}: call monkey_patch only in the program that needs it")


def descriptors() -> Descriptors:
    """The open descriptors of this process."""
    return frozenset((number, found.st_ino) for number, found in _open())


def left_open(before: Descriptors) -> list[str]:
    """The sockets, devices, event loops and child processes that were not there before, in words."""
    words = [_named(number, about) for number, about in _open() if (number, about.st_ino) not in before]
    words += map(_process, programs.children(os.getpid()))
    unique = list(dict.fromkeys(filter(None, words)))
    return unique if len(unique) <= _MOST else [*unique[:_MOST], f"{len(unique) - _MOST} others"]


def _open() -> Iterator[tuple[int, os.stat_result]]:
    for name in _names():
        with suppress(OSError):  # The one of the listing itself is closed by now.
            yield int(name), os.fstat(int(name))


def _names() -> Iterable[str]:
    with suppress(OSError):
        return [name for name in os.listdir(_FOLDER) if name.isdecimal()]  # noqa: PTH208 - it is no real folder
    return ()


def _named(number: int, about: os.stat_result) -> str:
    if stat.S_ISSOCK(about.st_mode):
        return _socket(number)
    with suppress(OSError):
        path = str(Path(f"/proc/self/fd/{number}").readlink())
        if path == "anon_inode:[eventpoll]":
            return "an event loop (epoll)"
        if path.startswith("/dev/") and path not in _STATELESS and stat.S_ISCHR(about.st_mode):
            return "" if path.startswith(_SHARED_ON_PURPOSE) else path
    return ""


def _process(pid: int) -> str:
    with suppress(OSError):
        if _TRACKER in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
            return ""
    return f"the process {pid}"


def _socket(number: int) -> str:
    # A process that has no descriptor left for the copy names it without its addresses.
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
            return "a socket"
        try:
            peer, word = copy.getpeername(), "to"
        except OSError:
            peer, word = copy.getsockname(), "at"
        if isinstance(peer, tuple):
            return f"a socket {word} {peer[0]}:{peer[1]}"
        # The pair of an event loop, for example, has no name.
        return f"a socket {word} {os.fsdecode(peer)}" if peer else ""
    return "a socket"
