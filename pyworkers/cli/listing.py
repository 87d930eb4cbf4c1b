"""The tables of the commands: columns of jobs, servers and queues; ages and actions of each place of jobs.

Pure, except that a place opens its jobs in Redis.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyworkers.api import (
    DeadSet,
    GroupStats,
    JobRecord,
    JobSet,
    ProcessView,
    Queue,
    QueueStats,
    RetrySet,
    ScheduledSet,
    SortedEntry,
    Work,
)
from pyworkers.cli.text import duration, fit, printable, width
from pyworkers.config.fields import RedisConfig
from pyworkers.config.groups import spell_queues

Jobs = Queue | JobSet

# Longer names are cut.
_WIDEST = 60
_LONGEST_TEXT = 1000


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, and the text of a job at a time (epoch seconds)."""

    title: str
    text: Callable[[JobRecord, float], str]


@dataclass(frozen=True, slots=True)
class BulkAction:
    """One action on jobs; ``run`` returns how many jobs this call moved."""

    verb: str
    done: str
    sentence: str
    run: Callable[[Jobs, Iterable[JobRecord]], int]
    to_queue: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A place that holds jobs. ``since`` is the time from which an age counts, ``age_is`` its description."""

    name: str
    open: Callable[[RedisConfig, str], Jobs]
    walk: Callable[[Jobs], Iterator[JobRecord]]
    since: Callable[[JobRecord], float | None]
    age_is: str
    order: str
    columns: Sequence[Column]
    actions: Sequence[BulkAction]

    def age_s(self, job: JobRecord, now: float) -> float | None:
        """The age of a job in seconds; None if unknown."""
        since = self.since(job)
        return None if since is None else now - since


def row(place: Place, job: JobRecord, now: float) -> list[str]:
    """The texts of the columns, each safe for the terminal; only the last one may be long."""
    *texts, last = (printable(column.text(job, now)[:_LONGEST_TEXT]) for column in place.columns)
    return [*(text if width(text) <= _WIDEST else fit(text, _WIDEST) for text in texts), last]


def process_row(about: ProcessView, now: float) -> tuple[str, ...]:
    """The columns of one server."""
    return (
        printable(about.identity),
        duration(max(0.0, now - about.started_at)) if about.started_at else "",
        str(about.busy),
        str(about.concurrency),
        f"{about.rss_kb / 1024:.0f} MB" if about.rss_kb else "",
        duration(max(0.0, now - about.beat)) if about.beat else "",
        _process_state(about, now),
        printable(", ".join(about.queues)),
    )


def _process_state(about: ProcessView, now: float) -> str:
    """``silent``, ``quiet`` or empty."""
    if about.silent(now):
        return "silent"
    return "quiet" if about.quiet else ""


def group_row(group: GroupStats) -> tuple[str, ...]:
    """The columns of one group of queues."""
    queues = spell_queues(tuple(group.queues) if group.strict else group.queues)
    sizes = map(str, (group.servers, group.processes, group.busy, group.concurrency))
    return printable(group.name), printable(group.mode), *sizes, printable(queues)


def work_row(work: Work, now: float) -> tuple[str, ...]:
    """The columns of one running job."""
    running = duration(max(0.0, now - work.run_at)) if work.run_at else ""
    names = (work.jid, work.queue, work.job_class, work.thread, work.identity)
    return running, *map(printable, names)


def queue_state(queue: QueueStats) -> str:
    """Why no job of a queue runs: ``paused``, ``unserved``; and the active server of an ordered one."""
    words = [word for word, holds in (("paused", queue.paused), ("unserved", not queue.served)) if holds]
    return ", ".join([*words, f"active: {printable(queue.active)}"] if queue.active else words)


def _ago(since: Callable[[JobRecord], float | None]) -> Callable[[JobRecord, float], str]:
    def text(job: JobRecord, now: float) -> str:
        moment = since(job)
        return "" if moment is None else duration(max(0.0, now - moment))

    return text


def _due(job: JobRecord, now: float) -> str:
    left = _score(job) - now
    return f"in {duration(left)}" if left >= 0 else f"{duration(-left)} ago"


def _score(job: JobRecord) -> float:
    return job.score if isinstance(job, SortedEntry) else 0.0


def _arguments(job: JobRecord, _now: float) -> str:
    if job.unreadable:
        return job.error
    return json.dumps(job.args, ensure_ascii=False, separators=(", ", ": "))[1:-1]


def _retries(job: JobRecord, _now: float) -> str:
    return "" if job.retry_count is None else str(job.retry_count + 1)


_JID = Column("jid", lambda job, _: job.jid)
_QUEUE = Column("queue", lambda job, _: job.queue)
_CLASS = Column("class", lambda job, _: job.job_class)
_ARGUMENTS = Column("arguments", _arguments)
_ERROR = Column("error", lambda job, _: job.error)
_DUE = Column("due", _due)

_RETRY = BulkAction(
    "retry", "retried", "Enqueue failed jobs now; their last failure is not counted.",
    lambda jobs, chosen: jobs.retry_jobs(chosen) if isinstance(jobs, JobSet) else 0, to_queue=True,
)  # fmt: skip
_ENQUEUE = BulkAction(
    "retry", "enqueued", "Enqueue scheduled jobs now, before they are due.",
    lambda jobs, chosen: jobs.enqueue_jobs(chosen) if isinstance(jobs, JobSet) else 0, to_queue=True,
)  # fmt: skip
_KILL = BulkAction(
    "kill", "killed", "Move jobs to the dead set.", lambda jobs, chosen: jobs.kill_jobs(chosen)
)  # fmt: skip
_DELETE = BulkAction(
    "delete", "deleted", "Delete jobs.", lambda jobs, chosen: jobs.delete_jobs(chosen)
)  # fmt: skip


def _earliest_first(jobs: Jobs) -> Iterator[JobRecord]:
    return reversed(jobs) if isinstance(jobs, JobSet) else iter(jobs)


QUEUE = Place(
    "jobs",
    lambda config, name: Queue(name, config),
    iter,
    lambda job: job.enqueued_at,
    "the time since it was enqueued",
    "the newest first",
    (Column("waiting", _ago(lambda job: job.enqueued_at)), _JID, _CLASS, _ARGUMENTS),
    (_KILL, _DELETE),
)
SCHEDULED = Place(
    "scheduled",
    lambda config, _: ScheduledSet(config),
    _earliest_first,
    lambda job: job.created_at,
    "the time since it was created",
    "the next one first",
    (_DUE, _JID, _QUEUE, _CLASS, _ARGUMENTS),
    (_ENQUEUE, _KILL, _DELETE),
)
RETRIES = Place(
    "retries",
    lambda config, _: RetrySet(config),
    _earliest_first,
    lambda job: job.failed_at,
    "the time since its last failure",
    "the next one first",
    (_DUE, Column("failures", _retries), _JID, _QUEUE, _CLASS, _ERROR),
    (_RETRY, _KILL, _DELETE),
)
DEAD = Place(
    "dead",
    lambda config, _: DeadSet(config),
    iter,
    _score,
    "the time since it died",
    "the latest first",
    (Column("died", _ago(_score)), _JID, _QUEUE, _CLASS, _ERROR),
    (_RETRY, _DELETE),
)
