"""Administration API: queues, job sets, processes, cron entries and statistics, by Sidekiq's names.

Used by the command line and by users' programs; the server never imports it. It connects at its first use.
Every change is conditional on one removal: a job that two clients (Sidekiq's Web UI is one) change at once is
moved once and never lost.
"""

from pyworkers.api.batches import Batch, BatchSet
from pyworkers.api.cron import CronJob, CronSet
from pyworkers.api.groups import GroupStats
from pyworkers.api.limits import LimitSet
from pyworkers.api.locks import Lock, LockSet
from pyworkers.api.processes import Process, ProcessSet, Work, WorkSet
from pyworkers.api.queue import Queue, QueuedJob
from pyworkers.api.record import JobRecord
from pyworkers.api.sets import DeadSet, JobSet, RetrySet, ScheduledSet, SortedEntry
from pyworkers.api.stats import Day, QueueStats, Stats
from pyworkers.protocol.limits import LimitStats
from pyworkers.store.processes import ProcessView
from pyworkers.store.search import Search

__all__ = [
    "Batch",
    "BatchSet",
    "CronJob",
    "CronSet",
    "Day",
    "DeadSet",
    "GroupStats",
    "JobRecord",
    "JobSet",
    "LimitSet",
    "LimitStats",
    "Lock",
    "LockSet",
    "Process",
    "ProcessSet",
    "ProcessView",
    "Queue",
    "QueueStats",
    "QueuedJob",
    "RetrySet",
    "ScheduledSet",
    "Search",
    "SortedEntry",
    "Stats",
    "Work",
    "WorkSet",
]
