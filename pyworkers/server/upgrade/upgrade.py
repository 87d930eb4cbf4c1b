"""Upgrade: starts a new server, and has this one stop when the new one fetches.

Runs in the master's event loop, from SIGUSR2 on. While the new server starts, this one works as before. If
the new one ends before it fetches, nothing changes.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from pyworkers import logs
from pyworkers.server.generations.reaper import Reaper
from pyworkers.server.upgrade.successor import CommandLine, Successor
from pyworkers.server.waiting import StartTask, cancel, now, until

# The interval between two looks at the new server.
_LOOK_S = 0.05
# The time of a killed process to end.
_KILLED_S = 2.0

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class UpgradeCallbacks:
    """The functions of the master that an upgrade calls."""

    listener: Callable[[], int]
    """The listening socket for the new server, -1 for none."""
    start: StartTask
    """Run a coroutine as a task of the server."""
    replaced: Callable[[int], None]
    """Stop: the process of this pid fetches."""


class UpgradePhase(Enum):
    """``STARTING → READY ⇄ UNDER_WAY``, and from each ``→ OVER``."""

    STARTING = auto()
    READY = auto()
    UNDER_WAY = auto()
    OVER = auto()


_REFUSALS = {
    UpgradePhase.STARTING: "this server has not started yet",
    UpgradePhase.UNDER_WAY: "a new server is starting already",
    UpgradePhase.OVER: "this server stops",
}


class Upgrade:
    """The upgrade of one server, once it has started; one at a time. ``forbidden`` is why there is none."""

    def __init__(
        self, command: CommandLine, reaper: Reaper, callbacks: UpgradeCallbacks, forbidden: str
    ) -> None:
        self._command = command
        self._forbidden = forbidden
        self._phase = UpgradePhase.STARTING
        self._reaper = reaper
        self._callbacks = callbacks
        self._successor: Successor | None = None
        self._task: asyncio.Task[None] | None = None

    def allow(self) -> None:
        """Note that this server has started."""
        self._phase = UpgradePhase.READY

    def begin(self) -> None:
        """SIGUSR2: start a new server, or log why not."""
        if reason := self._forbidden or _REFUSALS.get(self._phase):
            log.warning("upgrade.refused", reason=reason, **self._under_way())
            return
        try:
            successor = Successor(self._command, self._callbacks.listener())
        except OSError as error:
            log.error("upgrade.failed", error=str(error), hint="this server continues")
            return
        self._reaper.adopt(successor.process)
        self._phase = UpgradePhase.UNDER_WAY
        self._successor = successor
        log.info("upgrade.started", successor=successor.process.pid)
        self._task = self._callbacks.start(self._follow(successor), "upgrade")

    def _under_way(self) -> dict[str, object]:
        """The new server that starts, and what to do if it hangs; empty without one."""
        if self._successor is None:
            return {}
        pid = self._successor.process.pid
        return {"successor": pid, "hint": f"if it hangs: kill {pid}, and send USR2 again"}

    async def _follow(self, successor: Successor) -> None:
        """Wait until the new server fetches or has ended."""
        began = now()
        while True:
            # In this order: the output of a process is complete when it has ended.
            ended, ready = self._reaper.reaped(successor.process), successor.read()
            if ended or ready:
                break
            await asyncio.sleep(_LOOK_S)
        self._forget(UpgradePhase.READY if ended else UpgradePhase.OVER)
        pid, output = successor.process.pid, successor.output
        if ended:
            hint = "this server continues"
            log.error("upgrade.failed", successor=pid, reason=successor.end, output=output, hint=hint)
            return
        log.info("upgrade.done", successor=pid, after_s=round(now() - began, 1), output=output)
        self._callbacks.replaced(pid)

    async def abandon(self, deadline: float) -> None:
        """This server stops: end a new one that does not fetch yet; wait at most until ``deadline``."""
        successor, self._phase = self._successor, UpgradePhase.OVER
        if successor is None or self._task is None:
            return
        await cancel([self._task])
        log.warning("upgrade.abandoned", successor=successor.process.pid)
        for number, until_s in ((signal.SIGTERM, deadline), (signal.SIGKILL, deadline + _KILLED_S)):
            successor.signal(number)
            if await until(lambda: self._reaper.reaped(successor.process), until_s):
                break
        self._forget(UpgradePhase.OVER)

    def _forget(self, phase: UpgradePhase) -> None:
        self._phase = phase
        if self._successor is not None:
            self._successor.close()
            self._successor = None


def forbidden(embedded: bool, *, owned: bool = False, ends: bool = False) -> str:
    """Why a running server cannot be replaced; empty if it can."""
    if ends:
        return "this server ends by itself, when its jobs are done: start another one then"
    if owned:
        return "this server belongs to the program that has started it: start another one there"
    if os.getpid() == 1:
        return "this server is PID 1, and its end would end the container: start another container"
    return "the embedded Redis ends with this server: restart it" if embedded else ""
