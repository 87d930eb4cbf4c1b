"""Jobs: the enqueued jobs of a test, and how one of them runs: through the chain of a worker process.

Used in the test's process. Nothing is retried.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyworkers.app import Handler, Worker
from pyworkers.encryption import Encryption
from pyworkers.errors import EncryptionKeyError, PyworkersError, UnknownJobError
from pyworkers.protocol import envelope
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.flow.batch import expanded
from pyworkers.protocol.limits import Want
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.protocol.retry import MAX_RETRIES
from pyworkers.protocol.status import UNKNOWN, JobState, JobStatus
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime, StepChain
from pyworkers.worker.execution import Channel, Execution


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
    is_running: bool = field(repr=False, default=False)

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

    def begin(self) -> None:
        """Begin a run."""
        self.is_running = True

    def end(self) -> None:
        """End a run."""
        self.is_running = False

    def settle(self, outcome: Outcome) -> None:
        """Keep the outcome of a run; a snoozed job is due at the time that it chose."""
        self.outcome = outcome
        if outcome.fate is Fate.SNOOZE:
            self.at = outcome.at

    def arrive(self) -> None:
        """Be due."""
        self.at = None

    def put_off(self, at: float) -> None:
        """Wait until a limit lets the job start."""
        self.at = at


def run(
    job: EnqueuedJob,
    worker: Worker | None = None,
    apply: Callable[[Iterable[Effect]], None] = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> Outcome:
    """Run one job through the chain that a worker process builds. Raises the job's exception.

    The job keeps the outcome that a worker would have reported; ``apply`` gets its effects, and its notes.
    ``clock`` is in epoch seconds.
    """
    worker = worker or job.worker
    if worker is None:
        raise PyworkersError(
            f"no worker for {job.job_class}: it was enqueued by a Client, not by a Worker",
            hint="name the worker: drain(worker), inline(worker), or pytest --pyworkers-app",
        )
    message = Message.parse(job.raw, job.queue, lambda: job.jid)
    execution = Execution(message, channel=Channel(lambda _, noted: apply(noted)))
    # The test has already checked the limits of the job.
    execution.grant()
    bridge = Bridge()
    job.begin()
    try:
        outcome = _chain(worker, job, bridge, clock).run(execution)
    finally:
        job.end()
        bridge.close()
    outcome = expanded(outcome, job.raw)
    job.settle(outcome)
    apply(outcome.effects)
    if execution.exc_info:
        error = execution.exc_info[1]
        execution.forget()
        raise error
    return outcome


def runner_of(job: EnqueuedJob, other: Worker | None) -> Worker | None:
    """The application that runs a job: the one that enqueued it, unless ``other`` alone has its handler."""
    known = job.worker is not None and (other is None or _handler(job.worker, job) is not None)
    return job.worker if known else other or job.worker


def running(ran: Iterable[EnqueuedJob], jid: str) -> JobStatus:
    """The status of a job that runs now; ``UNKNOWN`` for any other. ``ran``: the jobs that have started."""
    found = next((job for job in ran if job.jid == jid and job.is_running), None)
    return UNKNOWN if found is None else JobStatus(JobState.RUNNING, found.queue)


def wants(job: EnqueuedJob, worker: Worker | None) -> list[Want]:
    """What a job asks of its limits; nothing if it cannot run. Raises what their functions raise."""
    owner = worker or job.worker
    handler = _handler(owner, job) if owner else None
    return [limit.want(job.args) for limit in handler.limits] if handler else []


def _chain(worker: Worker, job: EnqueuedJob, bridge: Bridge, clock: Callable[[], float]) -> StepChain:
    rng = random.Random(os.urandom(8))
    return StepChain(
        worker, _handler(worker, job), Runtime(bridge, MAX_RETRIES, clock, rng, redis_clock=clock)
    )


def _handler(worker: Worker, job: EnqueuedJob) -> Handler | None:
    try:
        return worker.lookup(job.queue, job.job_class)
    except UnknownJobError:
        return None


def _opened(data: dict[str, Any], jid: str, worker: Worker | None) -> list[Any]:
    """The arguments of a job; sealed ones of a Client with its own keys stay as they are."""
    args: list[Any] = data["args"]
    keys = (worker.encryption if worker else Encryption()).keys() if data.get("encrypted") is True else None
    try:
        return args if keys is None else keys.open(args, jid, data["class"])
    except EncryptionKeyError:
        return args
