"""Test support for applications: enqueue without Redis, and run the enqueued jobs.

Runs in the test's process. ``fake`` collects the jobs that any client of this process pushes, in any thread;
``inline`` runs them at once. Jobs go through JSON and through the whole middleware chain, as in production,
but nothing is retried: ``drain``, or the enqueue call under ``inline``, raises the error of a job.

    with fake() as queue:
        sign_up("ann@example.org")
        queue.assert_enqueued(send_mail, "ann@example.org")
        queue.drain()
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pyworkers.app import Job, Worker
from pyworkers.client import Transport, intercept
from pyworkers.encryption import Encryption, hand_over
from pyworkers.errors import EncryptionKeyError, PyworkersError, Snooze, UnknownJobError
from pyworkers.plugins.memory import MemoryBatches
from pyworkers.protocol import envelope
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.flow import effects_of_stored
from pyworkers.protocol.flow.admission import Admission, Admitted
from pyworkers.protocol.flow.ending import Ending
from pyworkers.protocol.flow.memory import Memory
from pyworkers.protocol.flow.plans import BatchPlan, BatchStatus
from pyworkers.protocol.limits import Want
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.protocol.rates import Rates
from pyworkers.protocol.retry import MAX_RETRIES
from pyworkers.protocol.sealing import KEY_BYTES, Keyring
from pyworkers.protocol.status import JobStatus
from pyworkers.protocol.terms import Others
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Chain, Setting
from pyworkers.worker.execution import Execution, Line

__all__ = ["EnqueuedJob", "Fake", "fake", "inline"]


@dataclass
class EnqueuedJob:
    """A job as Redis would hold it. ``at`` is in epoch seconds, None for a job that was due at once."""

    queue: str
    job_class: str
    args: list[Any]
    jid: str
    at: float | None
    data: dict[str, Any] = field(repr=False)
    """The whole envelope."""
    raw: bytes = field(repr=False)
    worker: Worker | None = field(repr=False, default=None)
    """The Worker that enqueued it; None for a Client without one."""
    outcome: Outcome | None = None
    """The outcome, once the job has run."""

    @classmethod
    def of(cls, pushed: PushedJob, owner: object) -> EnqueuedJob:
        """The job of a push."""
        worker = owner if isinstance(owner, Worker) else None
        data = envelope.decode(pushed.payload)
        args = _opened(data, pushed.jid, worker)
        facts = (pushed.queue, data["class"], args, pushed.jid, pushed.at, data, pushed.payload)
        return cls(*facts, worker=worker)

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects of the run; none before it."""
        return self.outcome.effects if self.outcome else ()

    def settle(self, outcome: Outcome) -> None:
        """Keep the outcome of a run; a snoozed job is due at the time that it chose."""
        self.outcome = outcome
        if outcome.fate is Fate.SNOOZE:
            self.at = outcome.at

    def put_off(self, at: float) -> None:
        """Wait until a limit lets the job start."""
        self.at = at


class _Kept:
    """What Redis keeps beside the jobs: the locks of unique jobs, status and results of tracked ones."""

    def __init__(self) -> None:
        self._admission = Admission()
        self._memory = Memory()

    def admit(
        self,
        jobs: list[PushedJob],
        now: float,
        waiting: Callable[[str], float],
        is_scheduled: Callable[[str], bool],
    ) -> Admitted:
        """Decide about pushed jobs (``Admission``), and write what belongs to their push."""
        admitted = self._admission.admit(jobs, now, waiting, is_scheduled)
        for job in admitted.jobs:
            if job.terms is not None:
                self.apply(job.terms.effects)
        return admitted

    def apply(self, effects: Iterable[Effect]) -> None:
        """Apply the effects of a start, a progress or an end."""
        effects = tuple(effects)
        self._admission.apply(effects)
        self._memory.apply(effects)

    def status(self, jid: str) -> JobStatus:
        """The status of a tracked job, as ``Client.status``."""
        return self._memory.status(jid)

    def result(self, jid: str) -> Any:
        """What a tracked job returned, as ``Client.result``; ResultTimeout if it has not run."""
        return self._memory.result(jid)

    def iteration(self, jid: str) -> dict[str, bytes]:
        """The state of a long job, as ``Client.iteration``."""
        return self._memory.iteration(jid)


class Fake:
    """The jobs that were enqueued under ``fake``."""

    def __init__(self) -> None:
        self.jobs: list[EnqueuedJob] = []
        """The waiting jobs, the oldest first."""
        self.ran: list[EnqueuedJob] = []
        """The jobs that ``drain`` has run, failed ones included, with their outcomes."""
        self._kept = _Kept()
        self._rates = Rates()
        self._ahead_s = 0.0
        self._batches = MemoryBatches()

    def push(self, jobs: list[PushedJob], owner: object) -> Others:
        """Take pushed jobs; called by clients. A full queue is an error at once: nothing drains it."""
        admitted = self._kept.admit(jobs, self.now(), self._size, self._is_scheduled)
        replaced = [job for job in self.jobs if job.jid in admitted.replaced]
        self.jobs[:] = [job for job in self.jobs if job.jid not in admitted.replaced]
        self.jobs += [EnqueuedJob.of(job, owner) for job in admitted.jobs]
        for job in replaced:
            ended = effects_of_stored(job.raw, Ending.DELETED, self.now(), job.queue)
            self._kept.apply(ended)
            self.push(self._batches.apply(ended), job.worker)
        return admitted.others

    def status(self, jid: str) -> JobStatus:
        """The status of a tracked job, as ``Client.status``."""
        return self._kept.status(jid)

    def result(self, jid: str) -> Any:
        """What a tracked job returned, as ``Client.result``; raises ResultTimeout if it has not run."""
        return self._kept.result(jid)

    def iteration(self, jid: str) -> dict[str, bytes]:
        """The state of a long job, as ``Client.iteration``."""
        return self._kept.iteration(jid)

    def now(self) -> float:
        """The time by which locks of unique jobs expire, and limits let jobs start, in epoch seconds."""
        return time.time() + self._ahead_s

    def advance(self, seconds: float) -> None:
        """Turn ``now`` on."""
        self._ahead_s += seconds

    def enlist(self, plan: BatchPlan, owner: object) -> None:
        """Take a batch and its jobs; called by clients."""
        self.push(self._batches.enlist(plan), owner)

    def batch_status(self, batch: str) -> BatchStatus | None:
        """The status of a batch; None for an unknown one."""
        return self._batches.status(batch)

    def batch_result(self, batch: str) -> str | None:
        """What a batch has returned, as JSON; None for an unknown one."""
        return self._batches.result(batch)

    def clear(self) -> None:
        """Forget all jobs, and all locks, statuses, results, and the starts that limits count."""
        self.jobs.clear()
        self.ran.clear()
        self._kept = _Kept()
        self._rates = Rates()

    def drain(self, worker: Worker | None = None, *, scheduled: bool = True) -> int:
        """Run the waiting jobs and those that they enqueue, until none is left; returns their number.

        ``worker`` is needed for jobs that a Client enqueued. ``scheduled=False`` leaves jobs with a time
        where they are. A snoozed job waits again and is not run twice by one call. A job that a rate does not
        let start yet waits, too, until ``advance`` has turned the clock to its turn. An exception of a job
        ends the drain and is raised; the job is then the last one of ``ran``.
        """
        count = 0
        snoozed: list[EnqueuedJob] = []
        try:
            while job := self._next(scheduled):
                if (turn := self._rates.start(_wants(job, worker), self.now())) is not None:
                    job.put_off(turn)
                    snoozed.append(job)
                    continue
                count += 1
                self.ran.append(job)
                try:
                    run(job, worker, self._kept.apply)
                except Snooze:
                    self.ran.pop()
                    snoozed.append(job)
                finally:
                    self.push(self._batches.apply(job.effects), job.worker)
        finally:
            self.jobs += snoozed
        return count

    def assert_enqueued(self, job: Job[..., Any] | str, *args: Any, **kwargs: Any) -> EnqueuedJob:
        """The first waiting job of this class, and with these arguments if any are given.

        Raises AssertionError, which lists the waiting jobs.
        """
        any_arguments = not (args or kwargs)
        wanted = [] if any_arguments else _as_stored(job, args, kwargs)
        for found in self.jobs:
            if found.job_class == _name(job) and (any_arguments or found.args == wanted):
                return found
        arguments = "" if any_arguments else f" with {wanted}"
        raise AssertionError(f"{_name(job)} was not enqueued{arguments}; {self._summary()}")

    def assert_none(self, job: Job[..., Any] | str | None = None) -> None:
        """Raise AssertionError if a job, or a job of this class, waits."""
        found = [other for other in self.jobs if job is None or other.job_class == _name(job)]
        if found:
            raise AssertionError(f"{len(found)} too many; {self._summary()}")

    def _size(self, queue: str) -> int:
        return sum(job.queue == queue and job.at is None for job in self.jobs)

    def _is_scheduled(self, jid: str) -> bool:
        return any(job.jid == jid and job.at is not None for job in self.jobs)

    def _next(self, scheduled: bool) -> EnqueuedJob | None:
        for index, job in enumerate(self.jobs):
            if scheduled or job.at is None:
                return self.jobs.pop(index)
        return None

    def _summary(self) -> str:
        if not self.jobs:
            return "nothing waits"
        return "waiting: " + ", ".join(f"{job.job_class}{tuple(job.args)}" for job in self.jobs)


class _Inline(_Kept):
    def __init__(self, worker: Worker | None) -> None:
        super().__init__()
        self._worker = worker
        self._batches = MemoryBatches()

    def push(self, jobs: list[PushedJob], owner: object) -> Others:
        # No job waits here, so no queue is full; and none is scheduled.
        admitted = self.admit(jobs, time.time(), lambda _: -math.inf, lambda _: False)
        for pushed in admitted.jobs:
            job = EnqueuedJob.of(pushed, owner)
            try:
                run(job, self._worker, self.apply)
            finally:
                self.push(self._batches.apply(job.effects), owner)
        return admitted.others

    def enlist(self, plan: BatchPlan, owner: object) -> None:
        self.push(self._batches.enlist(plan), owner)

    def batch_status(self, batch: str) -> BatchStatus | None:
        return self._batches.status(batch)

    def batch_result(self, batch: str) -> str | None:
        return self._batches.result(batch)


@contextmanager
def fake() -> Iterator[Fake]:
    """Collect the jobs that this process enqueues, instead of sending them to Redis."""
    collected = Fake()
    with _intercepted(collected):
        yield collected


@contextmanager
def inline(worker: Worker | None = None) -> Iterator[None]:
    """Run each job when it is enqueued, even if it is scheduled, or if a limit would put it off.

    The enqueue call raises the job's exception.

    ``worker`` is needed for jobs that a Client enqueues.
    """
    with _intercepted(_Inline(worker)):
        yield


def run(
    job: EnqueuedJob, worker: Worker | None = None, apply: Callable[[Iterable[Effect]], None] = lambda _: None
) -> Outcome:
    """Run one job through the chain that a worker process builds. Raises the job's exception.

    The job keeps the outcome that a worker would have reported; ``apply`` gets its effects, and its notes.
    """
    worker = worker or job.worker
    if worker is None:
        raise PyworkersError(
            f"no worker for {job.job_class}: it was enqueued by a Client, not by a Worker",
            hint="name the worker: drain(worker) or inline(worker)",
        )
    message = Message.parse(job.raw, job.queue, lambda: job.jid)
    execution = Execution(message, line=Line(lambda _, noted: apply(noted)))
    bridge = Bridge()
    try:
        outcome = _chain(worker, job, bridge).run(execution)
    finally:
        bridge.close()
    job.settle(outcome)
    apply(outcome.effects)
    if execution.exc_info:
        error = execution.exc_info[1]
        execution.forget()
        raise error
    return outcome


def _wants(job: EnqueuedJob, worker: Worker | None) -> list[Want]:
    """What a job asks of its limits; nothing if it cannot run. Raises what their functions raise."""
    owner = worker or job.worker
    try:
        handler = owner.lookup(job.queue, job.job_class) if owner else None
    except UnknownJobError:
        handler = None
    return [limit.want(job.args) for limit in handler.limits] if handler else []


def _chain(worker: Worker, job: EnqueuedJob, bridge: Bridge) -> Chain:
    try:
        handler = worker.lookup(job.queue, job.job_class)
    except UnknownJobError:
        handler = None
    rng = random.Random(os.urandom(8))
    return Chain(worker, handler, Setting(bridge, MAX_RETRIES, time.time, rng, redis_clock=time.time))


@contextmanager
def _intercepted(transport: Transport) -> Iterator[None]:
    previous, keys = intercept(transport), hand_over(_keys_of_tests)
    try:
        yield
    finally:
        hand_over(keys)
        intercept(previous)


@cache
def _keys_of_tests() -> Keyring:
    """Keys for encrypted jobs, which a test needs not configure."""
    return Keyring([os.urandom(KEY_BYTES)])


def _opened(data: dict[str, Any], jid: str, worker: Worker | None) -> list[Any]:
    """The arguments of a job; sealed ones of a Client with keys of its own stay as they are."""
    args: list[Any] = data["args"]
    keys = (worker.encryption if worker else Encryption()).keys() if data.get("encrypted") is True else None
    try:
        return args if keys is None else keys.open(args, jid, data["class"])
    except EncryptionKeyError:
        return args


def _name(job: Job[..., Any] | str) -> str:
    return job.name if isinstance(job, Job) else job


def _as_stored(job: Job[..., Any] | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments as the envelope carries them: bound to the signature, tuples as lists."""
    if isinstance(job, Job):
        bound = job.bind(*args, **kwargs)
    elif kwargs:
        raise TypeError("keyword arguments need the Job, not its name")
    else:
        bound = args
    stored: list[Any] = envelope.decode(f'{{"args":{envelope.encode(bound)}}}'.encode())["args"]
    return stored
