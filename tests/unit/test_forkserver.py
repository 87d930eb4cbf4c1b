"""The fork server without descriptors: it goes on, and the master asks again."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pyworkers.ipc import control
from pyworkers.programs.shared import left_open
from pyworkers.worker.forkserver import ForkServer


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open no more than this many descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    fill = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 50, hard))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                fill.append(os.dup(0))
        for _ in range(count):
            os.close(fill.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fill:
            os.close(fd)


def test_a_worker_for_whose_pipes_there_is_no_room_is_refused() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        server = ForkServer(theirs)
        given = [os.dup(0) for _ in range(control.FDS_PER_SPAWN)]
        spawn = control.dump(control.Spawn(7, "q", 0, 1, "process"))
        socket.send_fds(mine, [spawn], given)
        for fd in given:
            os.close(fd)
        with descriptors_left(2):
            assert server._receive()
            assert not server._descriptors
        [answer] = control.LineReader().feed(mine.recv(4096))
        assert answer == control.SpawnFailed(7, "too many open files")


def test_what_the_import_left_open_is_named_without_a_descriptor_to_spare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_number: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with socket.create_server(("127.0.0.1", 0)):
        monkeypatch.setattr(os, "dup", refused)
        assert "a socket" in left_open(frozenset())
