"""The program of every Python peer that enqueues: ``produce MODULE push noop 1000 one`` (peer.py).

It has ``push(kind, values, bulk)``, ``later(kind, value, at)`` if the peer can schedule,
and ``batch(kind, values, bulk)`` if it has batches: coroutine functions, or all of them plain ones, which
run without an event loop. It is imported by its name, because some peers name their jobs by it.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, cast

from contrib.bench.programs.work import Value

BLOB = "x" * 1_000_000


class Application(Protocol):
    """What the modules offer."""

    def push(self, kind: str, values: Sequence[Value], bulk: bool) -> Awaitable[None] | None: ...

    def later(self, kind: str, value: Value, at: float) -> Awaitable[None] | None: ...

    def batch(self, kind: str, values: Sequence[Value], bulk: bool) -> Awaitable[None] | None: ...


async def done(pending: Awaitable[None] | None) -> None:
    if pending is not None:
        await pending


async def push(app: Application, kind: str, count: str, how: str) -> None:
    values: list[Value] = [BLOB if kind == "blob" else 0] * int(count)
    await done(app.push(kind, values, how == "bulk"))


async def batch(app: Application, kind: str, count: str, how: str) -> None:
    await done(app.batch(kind, [0] * int(count), how == "bulk"))


async def later(app: Application, kind: str, count: str, delay_s: str, interval_ms: str) -> None:
    first = time.time() + float(delay_s)
    for number in range(int(count)):
        at = first + number * float(interval_ms) / 1000
        await done(app.later(kind, int(at * 1e9), at))


async def pace(app: Application, count: str, interval_ms: str) -> None:
    started = time.perf_counter()
    for number in range(int(count)):
        await done(app.push("stamp", [time.time_ns()], False))
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


def without_loop(work: Coroutine[Any, Any, float]) -> float:
    """The value of a coroutine that awaits nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(float, end.value)
    raise RuntimeError("a plain function has suspended")


if __name__ == "__main__":
    app = cast(Application, importlib.import_module(sys.argv[1]))
    run = asyncio.run if inspect.iscoroutinefunction(app.push) else without_loop
    print(json.dumps({"seconds": run(main(app, *sys.argv[2:]))}))
