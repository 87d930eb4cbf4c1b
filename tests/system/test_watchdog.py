"""Pings for systemd's watchdog, from the loop of the master."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.server_process import Serve
from tests.helpers.support import wait_for
from tests.system.test_upgrade import APP, NEW, stop_new, upgrade

PING = "WATCHDOG=1"


@contextmanager
def systemd(path: Path) -> Iterator[list[str]]:
    """A socket like systemd's, read all the time; the messages so far."""
    messages: list[str] = []

    def read(receiver: socket.socket) -> None:
        while text := receiver.recv(4096).decode():
            messages.append(text)

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        thread = threading.Thread(target=read, args=(receiver,))
        thread.start()
        try:
            yield messages
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                end.sendto(b"", str(path))
            thread.join()


def wait_for_pings(messages: list[str], count: int = 5) -> None:
    """Wait for this many more messages, all of them pings."""
    seen = len(messages)
    wait_for(lambda: len(messages) >= seen + count)
    assert set(messages[seen:]) == {PING}


def test_the_loop_pings_until_the_end(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with systemd(path) as messages, serve(APP, NOTIFY_SOCKET=str(path), WATCHDOG_USEC="100000") as server:
        wait_for(lambda: messages)
        assert messages[0] == "READY=1"
        wait_for_pings(messages)
        server.push("q", {"class": "Any", "args": ["wait"], "jid": "a"})
        server.wait_for_notes(1, "start")
        server.signal(signal.SIGTERM)
        server.wait_for_event("manager.state", state="quiet")
        wait_for_pings(messages)
        server.let_go("finish")
        assert server.wait() == 0


def test_a_new_server_pings_in_the_place_of_the_first(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with systemd(path) as messages, serve(APP, NOTIFY_SOCKET=str(path), WATCHDOG_USEC="100000") as server:
        new = upgrade(server, NEW)
        assert server.wait() == 0
        wait_for(lambda: f"MAINPID={new}" in messages)
        wait_for_pings(messages)
        stop_new(server, new)
