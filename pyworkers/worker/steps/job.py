"""The job: the code of the application, as one function: its links, the handler's links, and the handler.

Runs in the worker process, between the steps before and after it.
"""

from __future__ import annotations

from collections.abc import Callable

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.errors import BadMessageError, UnknownJobError
from pyworkers.handler import Handler
from pyworkers.middleware import CallBridge, InnerPart, build
from pyworkers.protocol.message import Message
from pyworkers.worker.execution import current_execution
from pyworkers.worker.steps.effects import StartEffects

log = logs.get_logger()


def job_of(worker: Worker, handler: Handler | None, bridge: CallBridge, starts: StartEffects) -> InnerPart:
    """The code that runs the jobs of a handler or, for None, that fails for each job."""
    if handler is None:
        return build(worker.links, _refuse, bridge)
    links = [*worker.links, *handler.middleware]
    # Only links can skip the job.
    run = _marked(handler.run, starts) if links else handler.run
    return build(links, run, bridge, is_async=handler.is_async, dropped=_Dropped())


def _refuse(message: Message) -> None:
    if not message.job_class:
        # No later release can add a handler for an empty class, so this job is not retried.
        raise BadMessageError(f"a job of the queue {message.queue!r} has no class")
    raise UnknownJobError(f"no handler for the class {message.job_class!r} of the queue {message.queue!r}")


def _marked(run: Callable[[Message], object], starts: StartEffects) -> Callable[[Message], object]:
    """The job, which notes that the links around it have called it, perhaps with other arguments."""

    def call(message: Message) -> object:
        execution = current_execution()
        execution.called()
        if not execution.plain and not execution.has_started:
            starts.note(execution, message)
        return run(message)

    return call


class _Dropped:
    """Logs for the first job of a handler in a process that its result is not kept."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self, message: Message) -> None:
        """Note a job that has returned a value, but whose envelope does not ask for it."""
        if not self._said:
            self._said = True
            log.info("job.result_dropped", hint="track=3600 keeps it for an hour: worker.result(jid)")
