"""Producer: the enqueue methods that Client and Worker share.

Pure: it makes drafts and passes the jobs to ``push``, which sends them. ``AsyncClient`` has the same methods
with ``await``.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

from pyworkers.protocol import timestamps
from pyworkers.protocol.draft import Drafting, PushedJob, batches, moment, seconds
from pyworkers.protocol.options import EnqueueOptions

BATCH_SIZE = 1000
"""Jobs that a bulk enqueue sends at a time (Sidekiq's client.rb)."""


class Producer(ABC):
    """The four enqueue methods, on top of ``push``."""

    _draft: Drafting

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
        ``backtrace``, ``tags``, ``retry_for``, ``retry_max``, ``retry_queue`` and ``jid``; the application's
        own fields go into ``extra={"tenant": 7}``.

        Raises BadArgumentError, with the path of the invalid value; StoreError if Redis refused the job; and
        RedisUnavailableError, after which it is unknown whether Redis has the job.
        """
        now = time.time()
        job = self._draft(queue, job_class, retry, options, moment(delay, at, now)).job(args, now)
        self.push([job])
        return job.jid

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
        """``enqueue`` for a moment: an aware datetime or epoch seconds."""
        return self.enqueue(queue, job_class, args, at=timestamps.due(at), retry=retry, **options)

    def enqueue_bulk(
        self,
        queue: str,
        job_class: str,
        args_list: Iterable[Sequence[Any]],
        *,
        delay: float | timedelta | None = None,
        at: datetime | float | None = None,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[str]:
        """Enqueue one job for each list of arguments in ``args_list``; return their jids in that order.

        Sent 1000 at a time: when this raises, the batches before the failing one are in Redis.
        """
        plan = self._draft(queue, job_class, retry, options, moment(delay, at, time.time()))
        jids: list[str] = []
        for batch in batches(args_list, BATCH_SIZE):
            jobs = plan.jobs(batch, time.time(), len(jids))
            self.push(jobs)
            jids += [job.jid for job in jobs]
        return jids

    @abstractmethod
    def push(self, jobs: list[PushedJob]) -> None:
        """Send jobs that were made of drafts, in one transaction."""
