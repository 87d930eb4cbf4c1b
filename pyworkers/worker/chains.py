"""Chains: the chains of an application, by queue and class, and what a runner does before and after them.

Runs in the worker process; the same for every runner. It reads no socket and writes no pipe.
"""

from __future__ import annotations

import time
from contextvars import copy_context
from dataclasses import dataclass, field

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.errors import BadMessageError, JobTimeout, UnknownJobError, WorkerLost
from pyworkers.handler import Handler
from pyworkers.ipc import jobsocket
from pyworkers.ipc.control import Settings
from pyworkers.ipc.jobsocket import Packet, PacketKind
from pyworkers.protocol import envelope, retry
from pyworkers.protocol.envelope import Rng
from pyworkers.protocol.keeping import Keep
from pyworkers.protocol.message import Message, set_run
from pyworkers.protocol.outcome import DONE, Fate, Loss, Outcome, Report
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime, StepChain
from pyworkers.worker.connection import Connection
from pyworkers.worker.cron import LIMIT_S, make_jobs
from pyworkers.worker.execution import Channel, Execution, FencedExecution
from pyworkers.worker.recycle import Recycler
from pyworkers.worker.steps.hooks import FailureHooks
from pyworkers.worker.steps.retry import AfterRequest
from pyworkers.worker.steps.start import bind
from pyworkers.worker.steps.timelimit import MakeTimer

log = logs.get_logger()


@dataclass(slots=True)
class _Queue:
    """The chains of one queue by class; one for the handler of a whole queue, whose payloads may name any
    number of classes."""

    name: str
    one_handler: bool
    fence: int | None
    """The fencing token, for an ordered queue."""
    chains: dict[str, StepChain] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessParts:
    """What a worker process has at its start, from which it makes its runner."""

    app: Worker
    settings: Settings
    rng: Rng
    bridge: Bridge
    connection: Connection

    def chains(self, timer: MakeTimer, after_request: AfterRequest) -> Chains:
        """The chains of the application."""
        settings, connection = self.settings, self.connection
        runtime = Runtime(
            self.bridge,
            settings.max_retries,
            time.time,
            self.rng,
            after_request,
            redis_clock=connection.redis_clock,
            backtrace=settings.backtrace,
            announce_limit=connection.announce_limit,
            timer=timer,
            fence=connection.fence,
        )
        channel = Channel(connection.note, connection.returns, connection.announce_start)
        return Chains(self.app, settings, runtime, channel)

    def recycler(self) -> Recycler:
        """What says when the process is to be replaced."""
        return Recycler(self.settings.max_jobs_per_worker, self.settings.max_memory_mb, self.rng)


class Chains:
    """Finds the chain for each job of a group."""

    def __init__(
        self, app: Worker, settings: Settings, runtime: Runtime, channel: Channel | None = None
    ) -> None:
        self._app = app
        self._settings = settings
        self._runtime = runtime
        self._channel = channel
        self._queues: dict[bytes, _Queue] = {}

    def prepare(self, packet: Packet) -> tuple[StepChain, Execution] | None:
        """The chain of a job and the record of its run; None for an invalid job: see ``refuse``."""
        number, _, name, raw = packet
        queue = self._queues.get(name) or self._first_of(name)
        try:
            message = Message.parse(raw, queue.name, self._make_jid)
        except BadMessageError:
            return None
        job_class = "" if queue.one_handler else message.job_class
        chain = queue.chains.get(job_class) or self._first(queue, job_class)
        if queue.fence is not None:
            return chain, FencedExecution(queue.fence, message, number, self._channel)
        return chain, Execution(message, number, self._channel)

    def prepare_granted(self, packet: Packet) -> tuple[StepChain, Execution] | None:
        """``prepare`` for a job that limits allow to start; the start of a rate's is reported."""
        if (found := self.prepare(packet)) is None:
            return None
        chain, execution = found
        if packet.kind == PacketKind.RATED and chain.asks:
            # The limits of its queue allow it to start; its handler's come next.
            return found
        execution.grant()
        if packet.kind != PacketKind.GRANTED and self._channel is not None:
            self._channel.started(packet.number)
        return found

    def refuse(self, packet: Packet) -> Report:
        """The report about an invalid job, which is kept in ``dead`` with the reason."""
        queue, error = jobsocket.queue_of(packet), ""
        try:
            Message.parse(packet.payload, queue, self._make_jid)
        except BadMessageError as bad:
            error = bad.message
        log.error("job.failed", outcome="dead", queue=queue, error_class="BadMessageError", error=error)
        payload = retry.refused(packet.payload, error, queue, time.time())
        return Report(Outcome(Fate.DEAD, payload=payload))

    def run_worker_task(self, packet: Packet) -> Report:
        """Run a worker task: make the jobs of cron slots, or call the hooks of a lost job."""
        if packet.kind == PacketKind.SLOTS:
            self._runtime.announce_limit(packet.number, LIMIT_S)
            return make_jobs(self._app, packet.payload)
        copy_context().run(self._report_loss, packet)
        return Report(DONE)

    def _report_loss(self, packet: Packet) -> None:
        """Call the hooks of a job whose own worker died, with its message, as that worker would have."""
        loss, queue = Loss.unpack(packet.payload), jobsocket.queue_of(packet)
        message = self._app.encryption.opened_if_possible(Message.parse(loss.raw, queue, lambda: loss.jid))
        set_run(Execution(message))
        bind(self._app.carried(), message)
        try:
            handler = self._app.lookup(queue, message.job_class)
        except UnknownJobError:
            handler = None
        outcome = loss.outcome
        kind = JobTimeout if outcome.error_class == JobTimeout.__name__ else WorkerLost
        hooks = FailureHooks(self._app, handler, self._runtime.bridge.run)
        if outcome.failed:
            hooks.call(message, kind(outcome.error_message), outcome)

    def build(self, queue: str, handler: Handler | None, *, ordered: bool = False) -> StepChain:
        """The chain of a handler for jobs of a queue, or of jobs without one."""
        default_s = self._settings.timeouts.get(queue)
        if default_s is None:
            default_s = (handler.timeout if handler else None) or 0.0
        keep = self._kept(queue, handler) if self._settings.keep or (handler and handler.keep) else None
        return StepChain(self._app, handler, self._runtime, default_s, ordered=ordered, keep=keep)

    def _kept(self, queue: str, handler: Handler | None) -> Keep | None:
        """What is kept of jobs that end: by the queue, or else by the handler, or else by the server."""
        of_queue, of_server = self._settings.keep.get(queue), self._settings.keep.get("")
        if of_queue is not None:
            return Keep(f"queue/{queue}", *of_queue) if of_queue else None
        if handler is not None and handler.keep is not None:
            name = f"class/{handler.name}" if handler.kind == "job" else f"queue/{queue}"
            return Keep(name, *handler.keep, handler.keep_args) if handler.keep else None
        return Keep("server", *of_server) if of_server else None

    def _first_of(self, name: bytes) -> _Queue:
        """Note a queue at its first job."""
        queue, fence = name.partition(b"\0")[0].decode(), jobsocket.fence_of(name)
        found = self._queues[name] = _Queue(queue, self._app.owns(queue), fence)
        return found

    def _first(self, queue: _Queue, job_class: str) -> StepChain:
        """Build the chain of a class at its first job; not kept for a class without a handler."""
        ordered = queue.fence is not None
        try:
            handler = self._app.lookup(queue.name, job_class)
        except UnknownJobError:
            return self.build(queue.name, None, ordered=ordered)
        chain = queue.chains[job_class] = self.build(queue.name, handler, ordered=ordered)
        return chain

    def _make_jid(self) -> str:
        return envelope.new_jid(self._runtime.rng)


def report_of(chain: StepChain, execution: Execution) -> Report:
    """The report about a job that has ended, whose error is dropped."""
    if execution.exc_info is not None:
        execution.forget()
    # In half the time of Report(…), which matches arguments to names.
    elapsed_ms = int(execution.elapsed_s * 1000 + 0.5)
    return tuple.__new__(Report, (execution.outcome, elapsed_ms, False, chain.name, ""))
