"""Overruns: the time limits of the jobs of one worker process, and the job that is charged when one ends.

Runs in the master's event loop. The worker itself ends a job whose limit ends; this is for one that goes on.
Its process is killed. Where several jobs share the process, signals find out first which of them hangs.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from pyworkers.ipc.page import ATTENTION, NO_JOB, UNSURE
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.endings import KILL_GRACE_S

# Until a process in which several jobs run has answered a signal.
_ANSWER_S = 0.25
# Between the signals: two, and more if the process gets no processor to answer. With two, a kill is less than
# a second late.
_APART_S = 0.5


class Process(Protocol):
    """The methods of the worker whose jobs have limits."""

    @property
    def answers(self) -> int:
        """The number of signals that it has answered."""

    @property
    def hanging(self) -> int:
        """Its last answer: the delivery that hangs in its main thread; 0 if none, UNSURE or NO_JOB."""

    def signal(self, number: int) -> None:
        """Send it a signal."""

    def unfinished(self) -> list[Delivery]:
        """The jobs that it runs."""

    def end_job(self, delivery: Delivery, fault: str) -> None:
        """Kill it if it still runs this job, for this reason."""

    def end_beside(self, fault: str) -> None:
        """Kill it, for a reason that is none of its jobs."""


class Overruns:
    """The limits of the jobs of one process that runs up to ``slots`` at once."""

    def __init__(self, process: Process, slots: int) -> None:
        self._process = process
        self._slots = slots
        self._loop = asyncio.get_running_loop()
        self.timers: dict[int, asyncio.TimerHandle] = {}
        """The timer of each job with a limit, by number. Only this class changes it."""

    def begin(self, delivery: Delivery, seconds: float) -> None:
        """Note that a job with a limit has begun."""
        timer = self._loop.call_later(seconds + KILL_GRACE_S, self._overrun, delivery, seconds)
        self.timers[delivery.number] = timer

    def finished(self, number: int) -> None:
        """Note that a job has ended, with or without a limit."""
        if timer := self.timers.pop(number, None):
            timer.cancel()

    def limit_at(self, number: int) -> float | None:
        """The end of the limit of a job, in seconds of the loop; None without a limit."""
        timer = self.timers.get(number)
        return None if timer is None else timer.when() - KILL_GRACE_S

    def forget(self) -> None:
        """Forget all limits."""
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def _overrun(self, delivery: Delivery, seconds: float) -> None:
        """End a job that did not end in time. If it shares its process, find out first which job hangs."""
        self.timers.pop(delivery.number, None)
        if self._slots == 1:
            self._end(delivery, seconds)
            return
        before = self._process.answers
        self._process.signal(ATTENTION)
        self._ask_again_later(delivery, seconds, before)

    def _ask_again_later(self, delivery: Delivery, seconds: float, before: int) -> None:
        timer = self._loop.call_later(_APART_S, self._ask_again, delivery, seconds, before)
        self.timers[delivery.number] = timer

    def _ask_again(self, delivery: Delivery, seconds: float, before: int) -> None:
        """Send another signal: a job that the one before has interrupted hangs only if it still runs.

        ``before`` is the number of answers before that signal.
        """
        answers = self._process.answers
        self._process.signal(ATTENTION)
        timer = self._loop.call_later(_ANSWER_S, self._judge, delivery, seconds, answers, answers > before)
        self.timers[delivery.number] = timer

    def _judge(self, delivery: Delivery, seconds: float, before: int, answered: bool) -> None:
        """End the process because of the job that hangs in its main thread, or else because of this one.

        Without an answer nothing shows which one hangs: all its jobs are suspects. If what hangs belongs to
        no job that runs, none is charged. A signal that was answered late, or not at all, proves nothing;
        ``answered`` tells whether the one before was answered in time.
        """
        self.timers.pop(delivery.number, None)
        unfinished = self._process.unfinished()
        if delivery not in unfinished:
            return
        if self._process.answers == before:
            self._process.end_job(
                delivery, f"was killed: it did not react, and a job ran longer than {seconds:g} s"
            )
            return
        number = self._process.hanging
        if number == UNSURE or not answered:
            self._ask_again_later(delivery, seconds, before)
            return
        if number == NO_JOB:
            self._process.end_beside(
                f"was killed: code of no running job blocked its loop, a job ran longer than {seconds:g} s"
            )
            return
        self._end(next((job for job in unfinished if job.number == number), delivery), seconds)

    def _end(self, delivery: Delivery, seconds: float) -> None:
        if delivery in self._process.unfinished():
            delivery.overrun(seconds)
            self._process.end_job(delivery, f"was killed: its job ran longer than {seconds:g} s")
