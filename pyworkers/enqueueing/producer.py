"""Producer: the enqueue methods that Client and Worker share.

Pure: it makes drafts and passes the jobs to ``push``, which sends them. ``AsyncClient`` has the same methods
with ``await``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Unpack

from pyworkers.enqueueing import clock
from pyworkers.errors import BadArgumentError, QueueFullError
from pyworkers.middleware import ClientMiddleware, pass_client_links
from pyworkers.protocol import timestamps
from pyworkers.protocol.conditions import Others
from pyworkers.protocol.draft import Bulk, Draft, Drafting, PushedJob, moment, parts_of, seconds, unlisted
from pyworkers.protocol.options import EnqueueOptions
from pyworkers.protocol.portions import portions

PORTION = 1000
"""Jobs that a bulk enqueue sends at a time (Sidekiq's client.rb)."""


class Producer(ABC):
    """The enqueue methods, on top of ``push``."""

    _draft: Drafting
    client_links: Sequence[ClientMiddleware]
    """The client middleware, the outermost first."""

    def enqueue(
        self,
        queue: str,
        job_class: str,
        args: Sequence[Any] = (),
        *,
        delay: float | timedelta | None = None,
        at: datetime | float | None = None,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """Enqueue one job and return its jid. When this returns, Redis has the job.

        ``delay`` is in seconds, ``at`` an aware datetime or epoch seconds; a time in the past is now.
        ``retry`` is a number of retries, True for 25 or False to drop a failed job; None is the declared
        value if the client knows the job (``Client.of``), and otherwise the handler's. The other ``options``
        are fields of the envelope (described in ``pyworkers.protocol.options``): ``timeout``, ``dead``,
        ``backtrace``, ``tags``, ``expires_in``, ``retry_for``, ``retry_max``, ``retry_queue``, ``track``,
        ``history`` and ``jid``; the application's own fields go into ``extra={"tenant": 7}``.
        ``unique_for`` with ``unique_until``, ``unique_by`` and ``on_duplicate``, and ``max_waiting`` with
        ``wait``, decide whether the job is enqueued: for a duplicate, the jid of the existing job is
        returned. ``encrypt`` seals the arguments.

        Raises BadArgumentError, with the path of the invalid value; QueueFullError, DuplicateJobError, and
        StoreError if Redis refused the job; and RedisUnavailableError, after which it is unknown whether
        Redis has the job.
        """
        now = clock.time()
        plan = self._draft(queue, job_class, retry, options, moment(delay, at, now))
        jid, jobs = one_job(plan, args, now, self.client_links)
        others = self.push(jobs)
        return others.get(jid, jid) if others else jid

    def try_enqueue(
        self,
        queue: str,
        job_class: str,
        args: Sequence[Any] = (),
        *,
        delay: float | timedelta | None = None,
        at: datetime | float | None = None,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str | None:
        """``enqueue``, or None if the queue is full (``max_waiting``)."""
        try:
            return self.enqueue(queue, job_class, args, delay=delay, at=at, retry=retry, **options)
        except QueueFullError:
            return None

    def enqueue_in(
        self,
        delay: float | timedelta,
        queue: str,
        job_class: str,
        args: Sequence[Any] = (),
        *,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """``enqueue`` for ``delay`` seconds from now."""
        return self.enqueue(queue, job_class, args, delay=seconds(delay), retry=retry, **options)

    def enqueue_at(
        self,
        at: datetime | float,
        queue: str,
        job_class: str,
        args: Sequence[Any] = (),
        *,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """``enqueue`` for the time ``at``: an aware datetime or epoch seconds."""
        return self.enqueue(queue, job_class, args, at=timestamps.due(at), retry=retry, **options)

    def enqueue_bulk(
        self,
        queue: str,
        job_class: str,
        args_list: Iterable[Sequence[Any]],
        *,
        delay: float | timedelta | None = None,
        at: Moments | None = None,
        spread: float | timedelta | None = None,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[str]:
        """Enqueue one job for each list of arguments in ``args_list``; return their jids in that order.

        ``at`` is a time for all, or a list with one for each job. ``spread``: seconds over which the jobs are
        spread evenly, from ``at``, ``delay``, or now on. Sent 1000 or 16 MB at a time: when this raises, the
        portions before the failing one are in Redis.
        """
        rows, due, times = timed(args_list, delay, at, spread, clock.time())
        plan = self._draft(queue, job_class, retry, options, due)
        return push_portions(self.push, bulk(plan, rows, self.client_links, times))

    @abstractmethod
    def push(self, jobs: list[PushedJob]) -> Others:
        """Send jobs that were made from drafts, in one transaction; does nothing for an empty list.

        Returns the duplicates (conditions.py), which were not pushed, each with the jid of the other job.
        """


def one_job(
    plan: Draft,
    args: Sequence[Any],
    now: float,
    links: Sequence[ClientMiddleware],
    path: str = "args",
    part: Bulk | None = None,
) -> tuple[str, list[PushedJob]]:
    """The jid of an enqueue call, and the jobs to push: one, unless a link decides otherwise.

    ``path`` names ``args`` in errors; ``part``: of a bulk enqueue.
    """
    if links:
        return pass_client_links(links, plan, args, now, path, part)
    job = plan.job(args, now, path)
    return job.jid, [job]


Portions = Generator[list[PushedJob], Others, list[str]]
"""Yields the jobs of a bulk enqueue, 1000 or 16 MB at a time, takes their duplicates, returns all jids."""


Moments = datetime | float | Sequence[datetime | float]
"""A time for all jobs of a bulk enqueue, or one for each."""
Times = Sequence[float | None]
"""When each job of a bulk enqueue is due, in epoch seconds, None for now."""


def timed(
    args_list: Iterable[Sequence[Any]],
    delay: float | timedelta | None,
    at: Moments | None,
    spread: float | timedelta | None,
    now: float,
) -> tuple[Iterable[Sequence[Any]], float | None, Times | None]:
    """The jobs of a bulk enqueue, when all of them are due, or else when each is. Raises BadArgumentError."""
    each_at = at if isinstance(at, list | tuple) else None
    start = None if each_at is not None else moment(delay, at, now)
    if each_at is None and spread is None:
        return args_list, start, None
    if not isinstance(args_list, Iterable):
        raise unlisted(args_list, "args_list")
    rows = list(args_list)
    if each_at is not None:
        return rows, None, _each_at(each_at, len(rows), delay, spread, now)
    begin, step = now if start is None else start, seconds(spread or 0) / max(1, len(rows))
    return rows, None, [moment(None, begin + step * place, now) for place in range(len(rows))]


def _each_at(at: Sequence[Any], number: int, delay: object, spread: object, now: float) -> Times:
    if delay is not None or spread is not None:
        raise BadArgumentError("a list of times excludes delay and spread", field="at")
    if len(at) != number:
        raise BadArgumentError(f"at has {len(at)} times for {number} jobs", field="at")
    return [moment(None, each, now) for each in at]


def bulk(
    plan: Draft,
    args_list: Iterable[Sequence[Any]],
    links: Sequence[ClientMiddleware],
    times: Times | None = None,
) -> Portions:
    """One job for each of ``args_list``."""
    if not isinstance(args_list, Iterable):
        raise unlisted(args_list, "args_list")
    jids: list[str] = []
    for portion in portions(args_list, PORTION):
        fresh, jobs = _many_jobs(plan, portion, clock.time(), len(jids), links, times)
        others: dict[str, str] = {}
        for part in parts_of(jobs, PORTION):
            others.update((yield part))
        jids += [others.get(jid, jid) for jid in fresh] if others else fresh
    return jids


def push_portions(push: Callable[[list[PushedJob]], Others], jobs: Portions) -> list[str]:
    """Push one portion after the other; return the jids."""
    try:
        portion = next(jobs)
        while True:
            portion = jobs.send(push(portion))
    except StopIteration as end:
        jids: list[str] = end.value
        return jids


async def push_portions_async(
    push: Callable[[list[PushedJob]], Awaitable[Others]], jobs: Portions
) -> list[str]:
    """As ``push_portions``, in an event loop."""
    try:
        portion = next(jobs)
        while True:
            portion = jobs.send(await push(portion))
    except StopIteration as end:
        jids: list[str] = end.value
        return jids


def _many_jobs(
    plan: Draft,
    args_list: Sequence[Sequence[Any]],
    now: float,
    start: int,
    links: Sequence[ClientMiddleware],
    times: Times | None,
) -> tuple[list[str], list[PushedJob]]:
    """A jid for each of ``args_list``, the part from ``start`` of a bulk enqueue, and the jobs to push."""
    if not links and times is None:
        jobs = plan.jobs(args_list, now, start)
        return [job.jid for job in jobs], jobs
    plan.refuse_jid()
    part, jids, pushed = Bulk(len(args_list)), list[str](), list[PushedJob]()
    for place, args in enumerate(args_list, start):
        own = plan if times is None else replace(plan, at=times[place])
        jid, jobs = one_job(own, args, now, links, f"args_list[{place}]", part)
        jids.append(jid)
        pushed += jobs
    return jids, pushed
