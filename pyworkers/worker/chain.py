"""The whole chain of a handler: logging → retry → stats → the application's links → the handler.

Built in the worker process for each handler at its first job, and by ``pyworkers.testing``, which thereby
runs jobs through exactly what they meet in production.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace

from pyworkers.app import Worker
from pyworkers.errors import BadMessageError, UnknownJobError
from pyworkers.handler import Handler
from pyworkers.middleware import CallNext, Layer, build
from pyworkers.protocol.envelope import Rng
from pyworkers.protocol.message import Message, set_current
from pyworkers.protocol.outcome import Outcome
from pyworkers.protocol.retry import Policy
from pyworkers.worker.links.logging import LastError, logged
from pyworkers.worker.links.retry import Retrying, exhausted_hooks, retried
from pyworkers.worker.links.stats import Stats


def chain_for(
    worker: Worker,
    handler: Handler | None,
    stats: Stats,
    *,
    max_retries: int,
    clock: Callable[[], float],
    rng: Rng,
    inner: Sequence[Layer] = (),
) -> CallNext:
    """A callable that runs one message and returns its outcome; it raises nothing that a job raises.

    ``handler`` None is for a class that nobody handles. ``clock`` gives epoch seconds. ``inner`` are the
    caller's own, between the built-in ones and the application's.
    """
    policy = handler.policy if handler else Policy()
    about = Retrying(
        replace(policy, max_retries=max_retries),
        clock,
        rng,
        handler.retry_in if handler else None,
        exhausted_hooks(worker, handler),
    )
    call = build(
        [*worker.links, *(handler.middleware if handler else ())], handler.run if handler else _refuse
    )
    for layer in reversed(inner):
        call = layer(call)
    last_error = LastError()
    call = logged(retried(stats.around(call), about, last_error), last_error, stats)

    def run(message: Message) -> Outcome:
        # What a job puts into context variables must not reach the next job.
        return copy_context().run(_run, call, message)

    return run


def _run(call: CallNext, message: Message) -> Outcome:
    set_current(message)
    return call(message)


def _refuse(message: Message) -> None:
    if not message.job_class:
        # No deploy will bring a handler for it.
        raise BadMessageError(f"a job of the queue {message.queue!r} has no class")
    raise UnknownJobError(f"no handler for the class {message.job_class!r} of the queue {message.queue!r}")
