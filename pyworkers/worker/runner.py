"""Runner: runs the jobs of a worker process, here one at a time in the main thread.

It takes the payload of a frame, runs the handler's chain and returns the report. It reads and writes no pipe.
"""

from __future__ import annotations

import random
import time
from functools import partial

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.errors import BadMessageError, JobTimeout, UnknownJobError, WorkerLost
from pyworkers.handler import Handler
from pyworkers.ipc.control import Settings
from pyworkers.protocol import envelope, retry
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import DONE, Fate, Loss, Outcome, Report
from pyworkers.worker.chain import Chain, chain_for
from pyworkers.worker.execution import Execution
from pyworkers.worker.links.limits import Announce, limited
from pyworkers.worker.links.link import ChainLink
from pyworkers.worker.links.retry import exhausted_hooks, run_exhausted
from pyworkers.worker.links.running import AfterRequest

log = logs.get_logger()


class SerialRunner:
    """Runs the jobs of one queue, one after the other."""

    def __init__(
        self,
        app: Worker,
        queue: str,
        settings: Settings,
        rng: random.Random,
        announce_limit: Announce,
        after_request: AfterRequest,
    ) -> None:
        self._app = app
        self._queue = queue
        self._settings = settings
        self._rng = rng
        self._announce_limit = announce_limit
        self._after_request = after_request
        # By class; one for the handler of a whole queue, because payloads may name any number of classes.
        self._chains: dict[str, Chain] = {}
        self._one_handler = app.owns(queue)
        self._execution: Execution | None = None
        self._early: BaseException | None = None

    def run(self, delivery: int, raw: bytes) -> Report:
        """Run the job of one frame."""
        # Drop a request that came before this job: it was for an earlier one.
        self._early = None
        try:
            message = Message.parse(raw, self._queue, self._make_jid)
        except BadMessageError as error:
            fields = {"queue": self._queue, "error_class": "BadMessageError", "error": error.message}
            log.error("job.failed", outcome="dead", **fields)
            payload = retry.refused(raw, error.message, self._queue, time.time())
            return Report(Outcome(Fate.DEAD, payload=payload))
        job_class = "" if self._one_handler else message.job_class
        chain = self._chains.get(job_class) or self._first(job_class)
        execution = self._execution = Execution(message, delivery)
        if self._early is not None:
            execution.ask(self._early)
        outcome = chain.run(execution)
        self._execution = None
        if execution.exc_info is not None:
            execution.forget()
        return Report(outcome, round(execution.elapsed_s * 1000), False, chain.name)

    def ask_to_end(self, request: BaseException) -> None:
        """Raise the request in the running job; a signal carries no job id.

        The master therefore sends a signal only while this worker has exactly one job in the master's table.
        """
        if self._execution is None:
            # The job may have arrived and be about to start: ``run`` then raises the request in it.
            self._early = request
        else:
            self._execution.ask(request)

    def run_exhausted_hooks(self, payload: bytes) -> Report:
        """Run the exhaustion hooks of a job whose own worker died."""
        loss = Loss.unpack(payload)
        message = Message.parse(loss.raw, self._queue, self._make_jid)
        try:
            handler = self._app.lookup(self._queue, message.job_class)
        except UnknownJobError:
            handler = None
        kind = JobTimeout if loss.error_class == JobTimeout.__name__ else WorkerLost
        run_exhausted(exhausted_hooks(self._app, handler), message, kind(loss.error_message))
        return Report(DONE)

    def build(self, handler: Handler | None) -> Chain:
        """The chain of a handler of this queue, or of jobs without one."""
        default_s = self._settings.timeouts.get(self._queue)
        if default_s is None:
            default_s = (handler.timeout if handler else None) or 0.0
        limit = partial(limited, default_s=default_s, announce=self._announce_limit)
        return chain_for(
            self._app,
            handler,
            max_retries=self._settings.max_retries,
            clock=time.time,
            rng=self._rng,
            after_request=self._after_request,
            inner=(ChainLink("time limit", limit),),
        )

    def _first(self, job_class: str) -> Chain:
        """Build the chain of a class at its first job; not kept for a class without a handler."""
        try:
            handler = self._app.lookup(self._queue, job_class)
        except UnknownJobError:
            return self.build(None)
        chain = self._chains[job_class] = self.build(handler)
        return chain

    def _make_jid(self) -> str:
        return envelope.new_jid(self._rng)
