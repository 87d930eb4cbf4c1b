"""Chain: all links of a handler, outermost first: built-in, the application's, the handler's own, the job.

Built in the worker process for each handler at its first job, and by ``pyworkers.testing``, which runs jobs
through the same links.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyworkers.app import Worker
from pyworkers.errors import BadMessageError, UnknownJobError
from pyworkers.handler import Handler
from pyworkers.middleware import CallNext, build, name_of
from pyworkers.protocol.envelope import Rng
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import DONE, Outcome
from pyworkers.protocol.retry import Policy
from pyworkers.worker.execution import Execution
from pyworkers.worker.links.context import isolated
from pyworkers.worker.links.effects import affecting
from pyworkers.worker.links.link import ChainLink, Run, wrap
from pyworkers.worker.links.logging import logged
from pyworkers.worker.links.retry import Retrying, exhausted_hooks, retried
from pyworkers.worker.links.running import AfterRequest, running


@dataclass(frozen=True, slots=True)
class Chain:
    """The links of one handler, as one function."""

    name: str
    """The name of the handler; empty for the chain of jobs without a handler."""
    run: Run
    """Runs one job and returns its outcome; an exception of the job is turned into an outcome."""
    links: tuple[tuple[str, str], ...]
    """The owner and the name of each link, the outermost first; the last one is the job."""


def chain_for(
    worker: Worker,
    handler: Handler | None,
    *,
    max_retries: int,
    clock: Callable[[], float],
    rng: Rng,
    after_request: AfterRequest = lambda _: None,
    inner: Sequence[ChainLink] = (),
) -> Chain:
    """Build the chain of a handler or, for None, the chain in which a job without a handler fails.

    ``clock`` gives epoch seconds. ``inner`` are further built-in links, between the others and the
    application's.
    """
    policy = handler.policy if handler else Policy()
    about = Retrying(
        replace(policy, max_retries=max_retries),
        clock,
        rng,
        handler.retry_in if handler else None,
        exhausted_hooks(worker, handler),
    )
    wanted = (
        (ChainLink("effects", partial(affecting, functions=tuple(worker.effects))),) if worker.effects else ()
    )
    built_in = (
        ChainLink("context", isolated),
        ChainLink("logging", logged),
        *wanted,
        ChainLink("retry", partial(retried, about=about)),
        ChainLink("running", partial(running, after=after_request)),
        *inner,
    )
    name = handler.name if handler else ""
    own = handler.middleware if handler else ()
    shown = [
        *(("built-in", link.name) for link in built_in),
        *(("application", name_of(link)) for link in worker.links),
        *(("handler", name_of(link)) for link in own),
        ("job", name),
    ]
    return Chain(name, wrap(built_in, _job(worker, handler)), tuple(shown))


def _job(worker: Worker, handler: Handler | None) -> Run:
    """The application's code, inside the built-in links: its own links and the job."""
    own = handler.middleware if handler else ()
    run = handler.run if handler else _refuse
    links = [*worker.links, *own]
    # Without links, run the job directly, which saves a function call for each job.
    return _linked(build(links, run)) if links else _bare(run)


def _linked(call: CallNext) -> Run:
    def job(execution: Execution) -> Outcome:
        return call(execution.message)

    return job


def _bare(run: Callable[[Message], object]) -> Run:
    def job(execution: Execution) -> Outcome:
        run(execution.message)
        return DONE

    return job


def _refuse(message: Message) -> None:
    if not message.job_class:
        # No later release can add a handler for an empty class, so this job is not retried.
        raise BadMessageError(f"a job of the queue {message.queue!r} has no class")
    raise UnknownJobError(f"no handler for the class {message.job_class!r} of the queue {message.queue!r}")
