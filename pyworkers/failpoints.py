"""Failpoints: named places where a test makes a process die, stop, hang or fail.

Called by master, fork server, worker and dashboard, and by the move of a queue. Unless the environment names
a place, ``hit`` is an empty function.

``PYWORKERS_FAILPOINTS="before_settle=kill@3,job_end=sleep:0.5*2"``: the action runs whenever a process
reaches the place, or only the third time (``@3``), and at most twice in all processes together (``*2``).
Actions are ``kill`` and ``stop`` (the signals, sent to the process itself), ``sleep:SECONDS`` and ``raise``.
``PYWORKERS_FAILPOINTS_LOG`` names the file to which each firing appends ``PLACE ACTION PID TIME`` before the
action; without it, processes are not counted together.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Place = Literal[
    "after_fetch",
    "before_dispatch",
    "before_claim",
    "mid_frame",
    "job_start",
    "job_end",
    "before_ask",
    "after_ask",
    "before_settle",
    "after_settle",
    "mid_recover",
    "mid_promote",
    "mid_give_back",
    "mid_sweep",
    "cron_after_slot",
    "before_takeover",
    "slots_asked",
    "slots_answered",
    "move_begun",
    "move_parked",
    "move_pushed",
    "move_removed",
    "move_ended",
    "back_closed",
    "back_removed",
    "request_pushed",
]
VARIABLE, LOG_VARIABLE = "PYWORKERS_FAILPOINTS", "PYWORKERS_FAILPOINTS_LOG"
_POINT = re.compile(
    r"(?P<place>\w+)=(?P<action>kill|stop|raise|sleep:(?P<seconds>[\d.]+))(@(?P<nth>\d+))?(\*(?P<times>\d+))?"
)


class FailpointError(Exception):
    """Raised by the action ``raise``."""


@dataclass(frozen=True, slots=True)
class Point:
    """An armed place; ``nth`` and ``times`` 0 are no limit."""

    place: str
    action: str
    seconds: float = 0.0
    nth: int = 0
    times: int = 0

    def act(self) -> None:
        """Perform the action. Returns after a sleep or a continued stop. Raises FailpointError."""
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.action == "raise":
            raise FailpointError(self.place)
        else:
            time.sleep(self.seconds)


class Failpoints:
    """The armed places of this process and its forks; ``log`` is the file that all processes append to."""

    def __init__(self, points: Mapping[str, Point], log: str | None) -> None:
        self._points = points
        self._log = log
        self._passed: Counter[str] = Counter()

    def hit(self, place: Place) -> None:
        """Fire if this place is armed and due."""
        if self._is_due(place):
            self._points[place].act()

    def _is_due(self, place: str) -> bool:
        point = self._points.get(place)
        if point is None:
            return False
        self._passed[place] += 1
        return point.nth in (0, self._passed[place]) and self._note(point)

    def _note(self, point: Point) -> bool:
        """Append a firing to the log; False if all processes together have already fired ``times`` times."""
        if self._log is None:
            return True
        with Path(self._log).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            fired = sum(line.split(" ", 1)[0] == point.place for line in file)
            if point.times and fired >= point.times:
                return False
            file.write(f"{point.place} {point.action} {os.getpid()} {time.time()}\n")
        return True


def parse(text: str) -> dict[str, Point]:
    """The points of ``PYWORKERS_FAILPOINTS``. Raises ValueError for an invalid one."""
    points = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        match = _POINT.fullmatch(part)
        if match is None or match["place"] not in get_args(Place):
            raise ValueError(
                f"{VARIABLE}: {part!r} is not PLACE=ACTION[@NTH][*TIMES]; see pyworkers.failpoints"
            )
        action = match["action"].partition(":")[0]
        nth, times = int(match["nth"] or 0), int(match["times"] or 0)
        points[match["place"]] = Point(match["place"], action, float(match["seconds"] or 0), nth, times)
    return points


def _never(place: Place) -> None:
    pass


hit: Callable[[Place], None] = _never
if text := os.environ.get(VARIABLE):
    _armed = Failpoints(parse(text), os.environ.get(LOG_VARIABLE))
    hit = _armed.hit
