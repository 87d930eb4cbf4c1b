"""The program of every Python peer that enqueues: ``produce MODULE push noop 1000 one`` (peer.py).

It has ``async def push(kind, values, bulk)``, ``later(kind, value, at)`` if the peer can schedule,
and ``batch(kind, values, bulk)`` if it has batches. It is imported
by its name, because some peers name their jobs by it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, cast

from contrib.bench.programs.work import Value

BLOB = "x" * 1_000_000


class Application(Protocol):
    """What the modules offer."""

    async def push(self, kind: str, values: Sequence[Value], bulk: bool) -> None: ...

    async def later(self, kind: str, value: Value, at: float) -> None: ...

    async def batch(self, kind: str, values: Sequence[Value], bulk: bool) -> None: ...


async def push(app: Application, kind: str, count: str, how: str) -> None:
    values: list[Value] = [BLOB if kind == "blob" else 0] * int(count)
    await app.push(kind, values, how == "bulk")


async def batch(app: Application, kind: str, count: str, how: str) -> None:
    await app.batch(kind, [0] * int(count), how == "bulk")


async def later(app: Application, kind: str, count: str, delay_s: str, interval_ms: str) -> None:
    first = time.time() + float(delay_s)
    for number in range(int(count)):
        at = first + number * float(interval_ms) / 1000
        await app.later(kind, int(at * 1e9), at)


async def pace(app: Application, count: str, interval_ms: str) -> None:
    started = time.perf_counter()
    for number in range(int(count)):
        await app.push("stamp", [time.time_ns()], False)
        # Not asyncio.sleep: a loop that wakes up would be a part of what is measured.
        time.sleep(max(0.0, started + (number + 1) * float(interval_ms) / 1000 - time.perf_counter()))


COMMANDS: dict[str, Callable[..., Awaitable[None]]] = {
    "push": push,
    "batch": batch,
    "later": later,
    "pace": pace,
}


async def main(app: Application, command: str, *words: str) -> float:
    """Do what the command line says; the seconds that it took."""
    started = time.perf_counter()
    await COMMANDS[command](app, *words)
    return time.perf_counter() - started


if __name__ == "__main__":
    app = cast(Application, importlib.import_module(sys.argv[1]))
    print(json.dumps({"seconds": asyncio.run(main(app, *sys.argv[2:]))}))
