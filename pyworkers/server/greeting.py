"""Greeting: what the log says at the start of a server, and at its stop, for the person who started it.

Used in the master's event loop. It decides nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyworkers import logs
from pyworkers.config.fields import Config
from pyworkers.server.plan import Group, Plan
from pyworkers.version import __version__

# An import that takes longer looks like a server that hangs.
_SLOW_IMPORT_S = 1.0

log = logs.get_logger()


@contextmanager
def importing(app: str | None, began: float) -> Iterator[None]:
    """Log that the application is being imported if that has not ended in a second.

    ``began`` is its start in monotonic seconds: the master has imported its own modules meanwhile.
    """
    wait_s = max(0.0, _SLOW_IMPORT_S - (time.monotonic() - began))
    timer = asyncio.get_running_loop().call_later(wait_s, _say_importing, app)
    try:
        yield
    finally:
        timer.cancel()


def _say_importing(app: str | None) -> None:
    log.info("app.importing", app=app, hint="it takes more than a second; the server starts after it")


def started(config: Config, redis: str, work: Plan, import_ms: int) -> None:
    """Log that the server has started; ``redis`` is the masked URL."""
    about = {
        "pyworkers": __version__,
        "application": config.app,
        "redis": f"{redis} namespace {config.redis.namespace}" if config.redis.namespace else redis,
        "groups": _groups(work.groups),
        "stop": f"Ctrl-C or SIGTERM: running jobs get {config.server.shutdown_timeout:g} s; "
        "a second Ctrl-C gives them back at once",
    }
    log.info("server.started", import_ms=import_ms, about=about)


def stopping(running: int, timeout_s: float) -> None:
    """Log that the server stops, and for what it waits until when."""
    deadline = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + timeout_s))
    waits = {"deadline": deadline, "hint": "a second Ctrl-C gives them back at once"} if running else {}
    log.info("server.stopping", running=running, timeout_s=timeout_s, **waits)


def hurried(running: int) -> None:
    """Log that the server does not wait for its running jobs."""
    log.warning("server.hurried", running=running, hint="they go back to their queues and run again")


def _groups(groups: Mapping[str, Group]) -> str:
    return "; ".join(map(_group, groups.values()))


def _group(group: Group) -> str:
    queues = "" if list(group.queues) == [group.name] else f" ({', '.join(group.queues)})"
    where = "" if group.mode == "process" else f" in {group.processes} processes, mode {group.mode}"
    return f"{group.name}{queues}: {group.concurrency} at a time{where}"
