"""Enqueuing: a program that enqueues at a steady rate, and notes the beginning and the end of each call.

Used by tests and the benchmark of failovers. It repeats no call.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import redis

from pyworkers import AsyncClient, Client, PyworkersError
from tests.helpers import warm
from tests.helpers.certificates import Certificates
from tests.helpers.support import ROOT, whole_lines

QUEUE = "queue:q"


class Call(NamedTuple):
    """One call, by the monotonic clock. ``code`` is that of its error, if it raised one."""

    began: float
    ended: float
    jid: str
    code: str


class Producer:
    """The running program, with one of the two clients: ``client`` or ``async``."""

    def __init__(
        self,
        url: str,
        kind: str,
        path: Path,
        rate: int = 200,
        certificates: Certificates | None = None,
        namespace: str = "",
    ) -> None:
        self._path = path
        path.touch()
        words = ["-m", "tests.helpers.enqueuing", kind, str(path), str(rate)]
        files = certificates.environment if certificates else {}
        place = {"PYWORKERS_REDIS__URL": url, "PYWORKERS_REDIS__NAMESPACE": namespace}
        environment = os.environ | files | place | {"PYTHONPATH": str(ROOT)}
        self._process = warm.start(words, cwd=ROOT, env=environment, stdout=1, stderr=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()

    def calls(self) -> list[Call]:
        """The calls that have ended."""
        found = (line.split("\t") for line in whole_lines(self._path))
        return [Call(float(began), float(ended), jid, code) for began, ended, jid, code in found]

    def acknowledged(self) -> list[Call]:
        """The calls that returned."""
        return [call for call in self.calls() if call.jid]


def kept(server: redis.Redis) -> set[str]:
    """The ids of the jobs that a server has."""
    raws: list[Any] = server.lrange(QUEUE, 0, -1)
    return {str(json.loads(raw)["jid"]) for raw in raws}


def lost(calls: Sequence[Call], there: set[str]) -> list[Call]:
    """The calls that returned, and whose jobs are missing."""
    return [call for call in calls if call.jid and call.jid not in there]


class _Notes:
    def __init__(self, path: str, rate: int) -> None:
        self._path = Path(path)
        self._period_s = 1 / rate
        self._next = time.monotonic()

    def write(self, began: float, jid: str, error: PyworkersError | None) -> None:
        code = getattr(error, "code", "") if error is not None else ""
        with self._path.open("a") as file:
            file.write(f"{began}\t{time.monotonic()}\t{jid}\t{code}\n")

    def pause_s(self) -> float:
        """The seconds until the next call. What was missed is not made up for."""
        now = time.monotonic()
        self._next = max(self._next + self._period_s, now)
        return self._next - now


def _produce(notes: _Notes) -> None:
    with Client() as client:
        while True:
            began = time.monotonic()
            try:
                notes.write(began, client.enqueue("q", "Any"), None)
            except PyworkersError as error:
                notes.write(began, "", error)
            time.sleep(notes.pause_s())


async def _produce_async(notes: _Notes) -> None:
    async with AsyncClient() as client:
        while True:
            began = time.monotonic()
            try:
                notes.write(began, await client.enqueue("q", "Any"), None)
            except PyworkersError as error:
                notes.write(began, "", error)
            await asyncio.sleep(notes.pause_s())


if __name__ == "__main__":
    kind, file, per_s = sys.argv[1:]
    if kind == "async":
        asyncio.run(_produce_async(_Notes(file, int(per_s))))
    else:
        _produce(_Notes(file, int(per_s)))
