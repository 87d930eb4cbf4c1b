"""Registry: which handler runs a job, by its queue and its class; the declared groups and limits.

Filled while the application is imported; read by the worker process. It calls no handler.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyworkers.config.groups import Sizes, largest
from pyworkers.config.stores import Stores
from pyworkers.errors import DeclarationError, UnknownJobError
from pyworkers.groups import size_facts
from pyworkers.handler import Handler, check_handler
from pyworkers.protocol.limits import Limit

if TYPE_CHECKING:
    from pyworkers.ipc.control import GroupFacts, HandlerFacts, QueueFacts


class Registry:
    """The handlers of one application, for whole queues and for job classes; its groups and limits."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupFacts] = {}
        self._by_queue: dict[str, Handler] = {}
        self._by_class: dict[str, Handler] = {}
        self._limits: dict[str, Limit] = {}
        self._limited: dict[str, str] = {}

    def add(self, handler: Handler) -> None:
        """Add a handler. Raises DeclarationError if it is invalid, or if another could run the same job."""
        check_handler(handler)
        self._check_owner(handler)
        if handler.kind == "process":
            self._by_queue[handler.queue] = handler
        else:
            self._by_class[handler.name] = handler
            if handler.limits:
                self._limited[handler.name] = handler.queue

    def add_group(self, name: str, facts: GroupFacts) -> None:
        """Add a group. Raises DeclarationError if its name or one of its queues is taken."""
        if name in self.groups:
            raise DeclarationError(f"two groups are named {name!r}")
        for other, declared in self.groups.items():
            if shared := [queue for queue in facts["queues"] if queue in declared["queues"]]:
                raise DeclarationError(
                    f"the queue {shared[0]!r} is in two groups, {other!r} and {name!r}",
                    hint="a queue is in one group",
                )
        self.groups[name] = facts

    def add_limit(self, limit: Limit) -> Limit:
        """Add a limit, and return it. Raises DeclarationError if its name has other numbers."""
        other = self._limits.setdefault(limit.name, limit)
        if replace(other, by=None) != replace(limit, by=None) or (other.by is None) != (limit.by is None):
            raise DeclarationError(
                f"the limit {limit.name!r} is declared twice, with other numbers",
                hint="declare it once, and name it in limits=[…] of several jobs",
            )
        return limit

    def check_limits(self, stores: Stores) -> None:
        """Raise DeclarationError for a limit of jobs on two Redis servers, where it would count apart."""
        first: dict[str, Handler] = {}
        for handler in self.handlers():
            for limit in handler.limits:
                other = first.setdefault(limit.name, handler)
                here, there = stores.name_of(handler.queue), stores.name_of(other.queue)
                if here != there:
                    raise DeclarationError(
                        f"the limit {limit.name!r} is on one Redis: {other.name} is on {there!r}, by its "
                        f"queue {other.queue!r}, and {handler.name} on {here!r}, by {handler.queue!r}",
                        hint="declare a limit for each Redis",
                        location=handler.place,
                    )

    def with_limited(self, stores: Stores) -> Stores:
        """The same with the jobs that have limits, also those that are declared later."""
        return replace(stores, limited=self._limited) if stores.several else stores

    def lookup(self, queue: str, job_class: str) -> Handler:
        """The handler that owns a job's queue, or else the handler of its class. Raises UnknownJobError."""
        handler = self._by_queue.get(queue) or self._by_class.get(job_class)
        if handler is None:
            raise UnknownJobError(f"no handler for the class {job_class!r} of the queue {queue!r}")
        return handler

    def owns(self, queue: str) -> bool:
        """True if one ``process`` handler runs all jobs of the queue."""
        return queue in self._by_queue

    def queues(self) -> set[str]:
        """The queues of all handlers and groups."""
        found = {handler.queue for handler in self.handlers()}
        return found.union(*(facts["queues"] for facts in self.groups.values()))

    def handlers(self) -> tuple[Handler, ...]:
        """All handlers: first of jobs, then of whole queues, in the order of their declaration."""
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
            classes = [job.name for job in jobs]
            sizes = size_facts(_largest(jobs))
            queues[name] = {"kind": "job", "is_async": is_async, "classes": classes, **sizes}
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
                        hint="a process handler owns all jobs of its queue: give it its own queue",
                    )
        elif handler.name in self._by_class:
            raise DeclarationError(
                f"two jobs are named {handler.name!r}, at {self._by_class[handler.name].place} and "
                f"{handler.place}",
                hint='give one another name: name="…", or name_prefix="…" of the job or of the Worker',
            )
        for job in self._jobs_of(queue):
            modes = job.sizes.mode, handler.sizes.mode
            if None not in modes and len(set(modes)) > 1:
                raise DeclarationError(
                    f"{handler.name}: the mode of the queue {queue!r} is {modes[0]} by the job {job.name}",
                    hint="the jobs of a queue have one mode: give this one its own queue",
                )


def _largest(jobs: list[Handler]) -> Sizes:
    """The largest sizes that the jobs of one queue declare, and their mode."""
    sizes = [job.sizes for job in jobs]
    return Sizes(
        largest(one.concurrency for one in sizes),
        largest(one.processes for one in sizes),
        next((one.mode for one in sizes if one.mode), None),
    )
