"""Runner: runs the jobs of a worker process, here one at a time in the main thread.

It takes a packet, runs the handler's chain and returns the report. It reads no socket and writes no pipe.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.errors import BadMessageError, JobTimeout, UnknownJobError, WorkerLost
from pyworkers.handler import Handler
from pyworkers.ipc.control import Settings
from pyworkers.ipc.jobsocket import Kind, Packet
from pyworkers.protocol import envelope, retry
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import DONE, Fate, Loss, Outcome, Report
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Chain, Setting
from pyworkers.worker.execution import Execution
from pyworkers.worker.links.limits import Alarm, Announce, Limits
from pyworkers.worker.links.retry import exhausted_hooks, run_exhausted
from pyworkers.worker.links.running import AfterRequest

log = logs.get_logger()


@dataclass(slots=True)
class _Queue:
    """The chains of one queue by class; one for the handler of a whole queue, whose payloads may name any
    number of classes."""

    name: str
    one_handler: bool
    chains: dict[str, Chain] = field(default_factory=dict)


class SerialRunner:
    """Runs the jobs of a group, one after the other."""

    def __init__(
        self,
        app: Worker,
        settings: Settings,
        rng: random.Random,
        announce_limit: Announce,
        after_request: AfterRequest,
    ) -> None:
        self._app = app
        self._settings = settings
        self._rng = rng
        self._announce_limit = announce_limit
        self._setting = Setting(Bridge(), settings.max_retries, time.time, rng, after_request)
        self._queues: dict[bytes, _Queue] = {}
        self._execution: Execution | None = None
        self._early: tuple[int, BaseException] | None = None

    def run(self, packet: Packet) -> Report:
        """Run the job of a packet, or the exhaustion hooks of a lost one."""
        number, kind, name, raw = packet
        queue = self._queues.get(name) or self._first_of(name)
        if kind != Kind.JOB:
            return self._run_exhausted_hooks(queue.name, raw)
        try:
            message = Message.parse(raw, queue.name, self._make_jid)
        except BadMessageError as error:
            fields = {"queue": queue.name, "error_class": "BadMessageError", "error": error.message}
            log.error("job.failed", outcome="dead", **fields)
            payload = retry.refused(raw, error.message, queue.name, time.time())
            return Report(Outcome(Fate.DEAD, payload=payload))
        job_class = "" if queue.one_handler else message.job_class
        chain = queue.chains.get(job_class) or self._first(queue, job_class)
        execution = self._execution = Execution(message, number)
        if self._early is not None and self._early[0] == number:
            execution.ask(self._early[1])
        outcome = chain.run(execution)
        self._execution = None
        if execution.exc_info is not None:
            execution.forget()
        return Report(outcome, int(execution.elapsed_s * 1000 + 0.5), False, chain.name)

    @property
    def current(self) -> int:
        """The delivery that runs in the main thread at this moment; 0 if none."""
        return self._execution.delivery if self._execution is not None else 0

    def ask_to_end(self, number: int, request: BaseException) -> None:
        """Raise the request in the job of this delivery: now, or at its start; not once it has ended."""
        if self._execution is None:
            # The job may have arrived and be about to start: ``run`` then raises the request in it.
            self._early = number, request
        elif self._execution.delivery == number:
            self._execution.ask(request)

    def _run_exhausted_hooks(self, queue: str, payload: bytes) -> Report:
        """Run the exhaustion hooks of a job whose own worker died."""
        loss = Loss.unpack(payload)
        message = Message.parse(loss.raw, queue, self._make_jid)
        try:
            handler = self._app.lookup(queue, message.job_class)
        except UnknownJobError:
            handler = None
        kind = JobTimeout if loss.error_class == JobTimeout.__name__ else WorkerLost
        run_exhausted(exhausted_hooks(self._app, handler), message, kind(loss.error_message))
        return Report(DONE)

    def build(self, queue: str, handler: Handler | None) -> Chain:
        """The chain of a handler for jobs of a queue, or of jobs without one."""
        default_s = self._settings.timeouts.get(queue)
        if default_s is None:
            default_s = (handler.timeout if handler else None) or 0.0
        return Chain(self._app, handler, self._setting, Limits(default_s, self._announce_limit, Alarm))

    def _first_of(self, name: bytes) -> _Queue:
        """Note a queue at its first job."""
        queue = name.decode()
        found = self._queues[name] = _Queue(queue, self._app.owns(queue))
        return found

    def _first(self, queue: _Queue, job_class: str) -> Chain:
        """Build the chain of a class at its first job; not kept for a class without a handler."""
        try:
            handler = self._app.lookup(queue.name, job_class)
        except UnknownJobError:
            return self.build(queue.name, None)
        chain = queue.chains[job_class] = self.build(queue.name, handler)
        return chain

    def _make_jid(self) -> str:
        return envelope.new_jid(self._rng)
