"""Worker: one forked process, with its state, its timers, its page, and the time limits of its jobs.

Runs in the master's event loop. It reads which jobs the process has, asks it to end one or to leave, and
kills a process that hangs; it never settles a job.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

from pyworkers import logs
from pyworkers.ipc.control import BOOT_FAILED
from pyworkers.ipc.page import ATTENTION, NO_JOB, UNSURE, Page, open_page
from pyworkers.server import proc
from pyworkers.server.generations.launch import Lifeline
from pyworkers.server.generations.reaper import Died, WorkerSpec
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.pool.delivery import Delivery, Events, GroupEvent
from pyworkers.server.stacks import StackReader, StackText

KILL_GRACE_S = 2.0
"""Seconds between the request to end and the kill, in which a job can clean up."""
# When an idle process that has not left gets its signal again: one that comes just before the process waits
# in the kernel does not end the wait.
_AGAIN_S = (0.1, 0.4, 1.6)
_FENCED = "ended itself: its server did not renew the lease, and its job must not overlap"
# As waitpid has it.
_BOOT_FAILED = BOOT_FAILED << 8

log = logs.get_logger()


class State(Enum):
    """The state of a worker; ``_NEXT`` has the transitions."""

    BOOTING = auto()
    SERVING = auto()
    """Takes jobs from the job socket."""
    LEAVING = auto()
    """Takes no more jobs; it exits when its jobs have ended."""
    GONE = auto()
    """Its process has ended; every descriptor is closed."""

    def to(self, state: State) -> State:
        """The next state. Raises RuntimeError if the table does not have this transition."""
        if state not in _NEXT[self]:
            raise RuntimeError(f"a worker that is {self.name} cannot become {state.name}")
        return state


_NEXT = {
    State.BOOTING: {State.SERVING, State.LEAVING, State.GONE},
    State.SERVING: {State.LEAVING, State.GONE},
    State.LEAVING: {State.LEAVING, State.GONE},
    State.GONE: set(),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits, in seconds."""

    overdue_s: float = 30.0
    """The time for hooks at the start and at the end of a worker, before they are logged as overdue."""
    unreported_s: float = 1.0
    """From the end of a worker's pipe to the report of its exit. A fork server reports it in milliseconds,
    and the master collects orphans every half second. After this time the worker is killed; after the same
    time again, it counts as ended, without an exit status.
    """
    stalled_s: float = 15.0
    """The time to read a job. A worker that needs longer is suspended, or hangs in clean-up: it is killed."""


DEFAULTS = Limits()


@dataclass(frozen=True, slots=True)
class Exit:
    """How a worker ended, and its unfinished jobs."""

    reason: str
    rss_kb: int
    unfinished: list[Delivery]
    failed_start: bool
    """True if the worker ended before its first job, without a request to leave."""
    unrelated: bool
    """True if it was killed for a reason other than these jobs."""


@dataclass(frozen=True, slots=True)
class Closed(GroupEvent):
    """The presence pipe of this worker is closed: it has exited, or a job has closed every descriptor."""

    member: int


class WorkerProcess:
    """One forked process of one generation. Only this class sets its public attributes.

    It reports its end by an event of its ``workers``; ``offered`` are the jobs that it may have taken.
    """

    def __init__(
        self, spec: WorkerSpec, spawner: Spawner, workers: Workers, offered: Mapping[int, Delivery]
    ) -> None:
        """Request the process from the fork server. Raises OSError if a descriptor cannot be opened."""
        self.spawner = spawner
        self.member, self.slots, self.mode = spec.member, spec.slots, spec.mode
        self.state = State.BOOTING
        self.pid = 0
        self._spec = spec
        self._started = False
        """True once its start-up hooks have run."""
        self.ended = False
        """True if it takes no more jobs, because it has exited."""
        self.abandoned = False
        """True if it was killed together with its jobs."""
        self.jobs_done = 0
        self.started_at = time.time()
        self.read_report = spawner.reports.read
        self._group = spec.group
        self._events = workers.events
        self._offered = offered
        self._limits = workers.limits
        self._loop = asyncio.get_running_loop()
        self._overruns = Overruns(self, spec.slots)
        self._timeout: asyncio.TimerHandle | None = None
        """The timer for a missing report; one at a time."""
        self._again: asyncio.TimerHandle | None = None
        self._fault = ""
        """The reason for its end, if the exit status does not show it."""
        self._unrelated = False
        """True if that reason is none of its jobs."""
        self.page, descriptors, lifeline, self._presence, stacks = open_all(spec)
        """The memory that it shares with the master; closed at its end, when it is in no pool."""
        self._stacks = StackReader(stacks, self.page, spec, self.signal, self._ask_to_look)
        self._lifeline = Lifeline(lifeline)
        self._loop.add_reader(self._presence, self._pipe_ended)
        self._number = spawner.spawn(spec, descriptors)
        self._expect(self._overdue, self._limits.overdue_s)

    # For the pool

    def claims(self) -> list[int]:
        """The deliveries that it has taken last, one for each slot; they may have ended since."""
        # A timer that was set for one of its jobs may ask once it is gone.
        return self.page.claims() if self.state is not State.GONE else []

    def limit_at(self, number: int) -> float | None:
        """The end of the time limit of a job, in seconds of the loop; None without a limit."""
        return self._overruns.limit_at(number)

    def unfinished(self) -> list[Delivery]:
        """The jobs that it runs."""
        return [self._offered[number] for number in self.claims() if number in self._offered]

    def request(self, number: int, interrupt: bool) -> None:
        """Ask the process to end a job: to give it back, or because it is cancelled."""
        self.page.request(number, interrupt)
        self._ask_to_look()

    def _attract(self, before: int, again_s: Sequence[float]) -> None:
        """Signal, and again while it does not answer: Python runs no handler if a wait begins just then."""
        if self.state is State.GONE or self.page.answers != before:
            return
        self.signal(ATTENTION)
        if again_s:
            self._loop.call_later(again_s[0], self._attract, before, again_s[1:])

    def _ask_to_look(self) -> None:
        self._attract(self.page.answers, _AGAIN_S)

    async def stacks(self, number: int) -> StackText:
        """The stacks of the process, this delivery's first; no text if it has ended meanwhile."""
        found = await self._stacks.read(number)
        return found if number in self.claims() and number in self._offered else StackText("")

    def leave(self) -> None:
        """Have it take no more jobs: it exits at once if it is idle, else after its jobs."""
        if self.state is State.GONE:
            return
        self.state = self.state.to(State.LEAVING)
        self.page.leave()
        self._wake_if_idle()

    def abandon(self) -> list[Delivery]:
        """Kill the process and return its jobs, if it has any."""
        unfinished = self.unfinished()
        if unfinished:
            self._discard(unfinished)
        return unfinished

    def abandon_idle(self) -> None:
        """Kill the process, which may have taken a job and not said so yet."""
        self._discard([])

    def _discard(self, jobs: list[Delivery]) -> None:
        self._kill(jobs)
        self.state = self.state.to(State.LEAVING)
        self.abandoned = True

    def end_job(self, delivery: Delivery, fault: str) -> None:
        """Kill the process if it still runs this job; ``fault`` is the reason. It may have ended since."""
        if self.state is not State.GONE and delivery in self.unfinished():
            self._fault = fault
            self._kill([delivery])

    def end_unrelated(self, fault: str) -> None:
        """Kill the process for a reason that is none of its jobs."""
        self._fault, self._unrelated = fault, True
        self.kill()

    def end_overdue(self, after_s: float) -> None:
        """Kill the process, which was to leave and has not in this time; one that was killed is not named."""
        if not self.abandoned:
            self._log_overdue(after_s)
        self.kill()

    def kill(self) -> None:
        """End the process, its descendants and the programs that its jobs have started, now."""
        self._kill(self.unfinished())

    def _kill(self, jobs: list[Delivery]) -> None:
        # Until the process has ended, no other job of it is charged: it ends for one reason.
        self._overruns.forget()
        if self.pid:
            oldest = min((job.handed_at for job in jobs), default=None)
            proc.kill_tree(self.pid, None if oldest is None else time.monotonic() - oldest)
        self._lifeline.close()

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if self.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    # Reports of the fork server and of the reaper, which its pool passes on

    def forked(self, pid: int) -> None:
        """The process runs. Its fork server reports it, and so does its READY frame."""
        if self.pid == 0 and self.state is not State.GONE:
            self.pid = pid
            self.spawner.expect(pid, self._spec)

    def refused(self, error: str) -> None:
        """The system refused the fork."""
        self._fault = f"could not be forked: {error}"

    def exited(self) -> None:
        """The process has ended: it takes no more jobs."""
        self.ended = True

    def end(self, status: int | None, rss_kb: int) -> Exit:
        """Release all that it has, and tell how it ended. Call this when its last outcomes are read."""
        unfinished, leaving = self.unfinished(), self.state is State.LEAVING
        if self.page.fenced:
            self._fault, self._unrelated = _FENCED, True
        unexpected = bool(unfinished) or not leaving
        reason = describe(status, self._fault, proc.oom_may_have_killed) if unexpected else ""
        if unexpected:
            # A worker has logged why its start-up hook failed, and the pool counts the failed starts.
            write = log.debug if status == _BOOT_FAILED else log.warning
            write("worker.lost", queue=self._group, pid=self.pid or None, reason=reason, rss_kb=rss_kb)
        failed_start = not unfinished and not leaving and self.jobs_done == 0
        self.state = self.state.to(State.GONE)
        self._release()
        return Exit(reason, rss_kb, unfinished, failed_start, self._unrelated)

    # Reports of the process

    def ready(self, pid: int) -> bool:
        """Its start-up hooks have run. True if it serves from now on."""
        # Its fork server may have died before it could report the pid.
        self.forked(pid)
        self._started = True
        booted = self.state is State.BOOTING
        if booted:
            self._expect(None, 0)
            self.state = self.state.to(State.SERVING)
        return booted

    def limited(self, delivery: Delivery, seconds: float) -> None:
        """A job with a time limit has begun."""
        self._overruns.begin(delivery, seconds)

    def finished(self, number: int) -> None:
        """A job has ended."""
        self.jobs_done += 1
        if self._overruns.timers:
            self._overruns.finished(number)
        if self.state is State.LEAVING:
            self._wake_if_idle()

    def fail(self, fault: str) -> None:
        """Kill the process, whose report is invalid, or which takes no jobs."""
        self._fault = fault
        self.kill()

    def _wake_if_idle(self) -> None:
        """Have a leaving process look at its page; a signal while a job runs could disturb the job.

        A process with a job looks at its page after the job; but it may have looked before ``leave``, and its
        outcome may be under way: this is called for each outcome. A process that has room for several jobs
        looks at once.
        """
        idle = not self.unfinished()
        if idle or self.mode != "process":
            self._wake(_AGAIN_S)
        if idle and not self.ended:
            self._expect(self._overdue, self._limits.overdue_s)

    def _wake(self, again_s: Sequence[float]) -> None:
        if self._again is not None:
            self._again.cancel()
        if self.mode != "process" or not self.unfinished():
            self.signal(ATTENTION)
            self._again = self._loop.call_later(again_s[0], self._wake, again_s[1:]) if again_s else None

    # Missing reports

    def _pipe_ended(self) -> None:
        """Its presence pipe is closed: it has exited, or a job has closed every descriptor."""
        if os.read(self._presence, 4096):
            return  # a job has written into it
        self._loop.remove_reader(self._presence)
        self.ended = True
        self._events.put_nowait(Closed(self.member))

    def expect_report(self) -> None:
        """Wait for the report of its end, for a while. Call this once its pipe is closed, and its last
        outcomes are read: they may have its pid.
        """
        if self.pid == 0 and not self.spawner.alive:
            # Its fork server never forked it, or its pid is unknown: no report will come.
            self._fault = self._fault or "did not start: its fork server ended"
            self._loop.call_soon(self._unreported)
        else:
            self._expect(self._closed_its_pipe, self._limits.unreported_s)

    def _closed_its_pipe(self) -> None:
        self._fault = self._fault or "closed its pipe"
        self.kill()
        self._expect(self._unreported, self._limits.unreported_s)

    def _expect(self, otherwise: Callable[[], None] | None, seconds: float) -> None:
        """Call ``otherwise`` after ``seconds``; replaces the previous timer."""
        if self._timeout is not None:
            self._timeout.cancel()
        self._timeout = self._loop.call_later(seconds, otherwise) if otherwise else None

    def _overdue(self) -> None:
        """React to a hook that hangs. A booting worker may still become ready; a leaving worker is killed.

        If the worker is not even forked, its fork server is suspended or hangs: a new one replaces it.
        """
        if not self.pid:
            log.error("forkserver.silent", queue=self._group, after_s=self._limits.overdue_s)
            self.spawner.give_up()
            return
        if self.state is State.LEAVING and self.unfinished():
            # It took one more job before it saw the request; the time begins again when the job has ended.
            return
        self._log_overdue(self._limits.overdue_s)
        if self.state is State.LEAVING:
            self.kill()

    def _log_overdue(self, after_s: float) -> None:
        hook = "on_shutdown" if self._started else "on_startup"
        log.warning("worker.overdue", queue=self._group, pid=self.pid or None, hook=hook, after_s=after_s)

    def _unreported(self) -> None:
        if self.state is not State.GONE:
            self.kill()
            self.exited()
            self._events.put_nowait(Died(self.member, None))

    def _release(self) -> None:
        """Close every descriptor, cancel all timers, and ignore later messages about this worker."""
        self.spawner.forget(self._number)
        self._loop.remove_reader(self._presence)
        os.close(self._presence)
        self._lifeline.close()
        self._stacks.close()
        self.page.close()
        self._overruns.forget()
        for timer in (self._timeout, self._again):
            if timer is not None:
                timer.cancel()


# Until a process in which several jobs run has answered a signal.
_ANSWER_S = 0.25
# Between the signals: two, and more if the process gets no processor to answer. With two, a kill is less than
# a second late.
_APART_S = 0.5


class Overruns:
    """The limits of the jobs of one process that runs up to ``slots`` at once."""

    def __init__(self, process: WorkerProcess, slots: int) -> None:
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
        before = self._process.page.answers
        self._process.signal(ATTENTION)
        self._ask_again_later(delivery, seconds, before)

    def _ask_again_later(self, delivery: Delivery, seconds: float, before: int) -> None:
        timer = self._loop.call_later(_APART_S, self._ask_again, delivery, seconds, before)
        self.timers[delivery.number] = timer

    def _ask_again(self, delivery: Delivery, seconds: float, before: int) -> None:
        """Send another signal: a job that the one before has interrupted hangs only if it still runs.

        ``before`` is the number of answers before that signal.
        """
        answers = self._process.page.answers
        self._process.signal(ATTENTION)
        timer = self._loop.call_later(_ANSWER_S, self._judge, delivery, seconds, answers, answers > before)
        self.timers[delivery.number] = timer

    def _judge(self, delivery: Delivery, seconds: float, before: int, answered: bool) -> None:
        """End the process because of the job that hangs in its main thread, or else because of this one.

        Without an answer nothing shows which one hangs: all its jobs are suspects. If what hangs belongs to
        no job that runs, none is charged. A signal that was answered late, or not at all, proves nothing.
        ``answered``: the signal before was answered in time.
        """
        self.timers.pop(delivery.number, None)
        unfinished = self._process.unfinished()
        if delivery not in unfinished:
            return
        if self._process.page.answers == before:
            self._process.end_job(
                delivery, f"was killed: it did not react, and a job ran longer than {seconds:g} s"
            )
            return
        number = self._process.page.running
        if number == UNSURE or not answered:
            self._ask_again_later(delivery, seconds, before)
            return
        if number == NO_JOB:
            self._process.end_unrelated(
                f"was killed: code of no running job blocked its loop, a job ran longer than {seconds:g} s"
            )
            return
        self._end(next((job for job in unfinished if job.number == number), delivery), seconds)

    def _end(self, delivery: Delivery, seconds: float) -> None:
        if delivery in self._process.unfinished():
            delivery.overrun(seconds)
            self._process.end_job(delivery, f"was killed: its job ran longer than {seconds:g} s")


class Workers:
    """The workers of one group by their numbers, their time ``limits``, and the events that are reported."""

    def __init__(self, limits: Limits = DEFAULTS) -> None:
        self.limits = limits
        self.events: Events = asyncio.Queue()
        self._members: dict[int, WorkerProcess] = {}
        self.get = self._members.get
        """Returns the worker with a number; None if there is none."""

    def __iter__(self) -> Iterator[WorkerProcess]:
        """All workers, the oldest first; others may come and go meanwhile."""
        return iter(list(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    def add(self, worker: WorkerProcess) -> None:
        """Add a worker that was requested."""
        self._members[worker.member] = worker

    def remove(self, worker: WorkerProcess) -> None:
        """Remove a worker that has ended."""
        del self._members[worker.member]

    def claims(self) -> dict[int, WorkerProcess]:
        """The worker of each delivery that is claimed; also of deliveries that have ended."""
        return {number: worker for worker in self._members.values() for number in worker.claims()}


def open_all(spec: WorkerSpec) -> tuple[Page, tuple[int, ...], int, int, int]:
    """The page, the descriptors for the process, and the master's: lifeline, presence pipe, the page's file.

    Raises OSError.
    """
    opened: list[int] = []
    try:
        opened.append(os.dup(spec.jobs))
        opened.append(os.dup(spec.outcomes))
        opened.extend(os.pipe())
        opened.extend(os.pipe())
        page, memory = open_page(spec.slots)
        opened += (memory, os.dup(memory))
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    jobs, outcomes, lifeline_end, lifeline, presence, presence_end, memory, stacks = opened
    return page, (jobs, outcomes, lifeline_end, presence_end, memory), lifeline, presence, stacks


def describe(status: int | None, fault: str = "", oom: Callable[[], bool] = lambda: False) -> str:
    """Describes a status of waitpid; ``fault`` is the reason if the master has killed the worker.

    ``oom`` is called for a SIGKILL without a fault: True if the system may have killed it for lack of memory.
    """
    if status is None:
        return fault or "ended"
    if not os.WIFSIGNALED(status):
        return f"exited with status {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    if fault and number == signal.SIGKILL:
        return fault
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    hint = ", perhaps for lack of memory" if number == signal.SIGKILL and oom() else ""
    return f"was killed by {name}{hint}"


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker process: its ``state`` is a word for the log, ``started_at`` is in epoch seconds."""

    group: str
    pid: int
    state: str
    started_at: float
    jobs_done: int
