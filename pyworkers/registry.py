"""Registry: which handler runs a job, by its queue and its class.

Filled while the application is imported; read by the worker process. It calls no handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyworkers.config.groups import Sizes
from pyworkers.errors import DeclarationError, UnknownJobError
from pyworkers.groups import size_facts
from pyworkers.handler import Handler, check_handler

if TYPE_CHECKING:
    from pyworkers.ipc.control import HandlerFacts, QueueFacts


class Registry:
    """The handlers of one application: those of whole queues and those of job classes."""

    def __init__(self) -> None:
        self._by_queue: dict[str, Handler] = {}
        self._by_class: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        """Add a handler. Raises DeclarationError if it is invalid, or if another could run the same job."""
        check_handler(handler)
        self._check_owner(handler)
        if handler.kind == "process":
            self._by_queue[handler.queue] = handler
        else:
            self._by_class[handler.name] = handler

    def lookup(self, queue: str, job_class: str) -> Handler:
        """The handler of a job: the owner of its queue, or else that of its class. Raises UnknownJobError."""
        handler = self._by_queue.get(queue) or self._by_class.get(job_class)
        if handler is None:
            raise UnknownJobError(f"no handler for the class {job_class!r} of the queue {queue!r}")
        return handler

    def owns(self, queue: str) -> bool:
        """True if one ``process`` handler runs all jobs of the queue."""
        return queue in self._by_queue

    def handlers(self) -> tuple[Handler, ...]:
        """All handlers: those of jobs, then those of whole queues, in the order of their declaration."""
        return (*self._by_class.values(), *self._by_queue.values())

    def job_facts(self, job_class: str) -> HandlerFacts:
        """The manifest of the handler of one class."""
        return self._by_class[job_class].manifest()

    def queue_facts(self) -> dict[str, QueueFacts]:
        """The manifest of all queues."""
        queues: dict[str, QueueFacts] = {
            queue: {"kind": "process", **size_facts(handler.sizes), **handler.manifest()}
            for queue, handler in self._by_queue.items()
        }
        for name in dict.fromkeys(job.queue for job in self._by_class.values()):
            jobs = self._jobs_of(name)
            is_async = all(job.is_async for job in jobs)
            queues[name] = {"kind": "job", "is_async": is_async, **size_facts(_largest(jobs))}
        for name, facts in queues.items():
            ordered = [handler for handler in self.handlers() if handler.queue == name and handler.ordered]
            if ordered:
                facts["ordered"] = True
                facts["skip_dead"] = all(handler.skip_dead for handler in ordered)
        return queues

    def _jobs_of(self, queue: str) -> list[Handler]:
        return [job for job in self._by_class.values() if job.queue == queue]

    def _check_owner(self, handler: Handler) -> None:
        queue = handler.queue
        if queue in self._by_queue:
            raise DeclarationError(
                f"{handler.name}: the queue {queue!r} belongs to {self._by_queue[queue].name}",
                hint="a process handler owns all jobs of its queue",
            )
        if handler.kind == "process":
            for job in self._by_class.values():
                if job.queue == queue:
                    raise DeclarationError(
                        f"{handler.name}: the queue {queue!r} has the job {job.name}",
                        hint="a process handler owns all jobs of its queue: give it a queue of its own",
                    )
        elif handler.name in self._by_class:
            raise DeclarationError(
                f"two jobs are named {handler.name!r}", hint='give one another name: @worker.job(name="…")'
            )
        for job in self._jobs_of(queue):
            modes = job.sizes.mode, handler.sizes.mode
            if None not in modes and len(set(modes)) > 1:
                raise DeclarationError(
                    f"{handler.name}: the mode of the queue {queue!r} is {modes[0]} by the job {job.name}",
                    hint="the jobs of a queue have one mode: give this one a queue of its own",
                )


def _largest(jobs: list[Handler]) -> Sizes:
    """The largest sizes that the jobs of one queue declare, and their mode."""
    sizes = [job.sizes for job in jobs]
    return Sizes(
        max((one.concurrency or 0 for one in sizes), default=0) or None,
        max((one.processes or 0 for one in sizes), default=0) or None,
        next((one.mode for one in sizes if one.mode), None),
    )
