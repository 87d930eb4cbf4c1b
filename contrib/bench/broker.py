"""The Redis of the benchmarks: their own server on loopback, which every peer reaches over TCP.

It keeps nothing on disk, so that the disk is not what is measured. It ends with the harness.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import redis


class Broker:
    """A running Redis."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid
        self.url = f"redis://127.0.0.1:{port}/0"
        self.client = redis.Redis(port=port)

    def cpu_s(self) -> float:
        """The CPU seconds of all its threads, user and system."""
        info = self.client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def waiting(self, key: str) -> int:
        """The jobs in a queue, a list."""
        return int(self.client.llen(key))

    def scheduled(self, key: str) -> int:
        """The jobs in a sorted set."""
        return int(self.client.zcard(key))

    def used_bytes(self) -> int:
        """The memory that its data take, with its own structures."""
        return int(self.client.info("memory")["used_memory"])

    def version(self) -> str:
        return str(self.client.info("server")["redis_version"])


@contextlib.contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    """Start a Redis with its files in ``folder``, and stop it after the block.

    Raises RuntimeError if there is no ``redis-server`` or it does not answer.
    """
    binary = shutil.which("redis-server")
    if binary is None:
        raise RuntimeError("no redis-server; install Debian's package redis-server")
    port = free_port()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    with (folder / "redis.log").open("wb") as log:
        server = subprocess.Popen([*command, "--save", "", "--appendonly", "no"], stdout=log, stderr=log)
    try:
        broker = Broker(port, server.pid)
        _wait_until_it_answers(broker)
        yield broker
    finally:
        server.kill()
        server.wait()


def free_port() -> int:
    """A port of loopback that was free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_it_answers(broker: Broker, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            broker.client.ping()
        except redis.ConnectionError as error:
            if time.monotonic() > deadline:
                raise RuntimeError("redis-server does not answer") from error
            time.sleep(0.02)
        else:
            return
