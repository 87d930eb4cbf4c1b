"""The API: what people look at and change, by Sidekiq's names.

Used by the command line and by users' programs; the server never imports it. It connects when it is first
asked. Every change hangs on one removal, so that a job on which two people act at once is moved once and is
never lost, also if one of them uses Sidekiq's Web UI.
"""

from pyworkers.api.cron import CronJob, CronSet
from pyworkers.api.processes import Process, ProcessSet, Work, WorkSet
from pyworkers.api.queue import Queue, QueuedJob
from pyworkers.api.record import JobRecord
from pyworkers.api.sets import DeadSet, JobSet, RetrySet, ScheduledSet, SortedEntry
from pyworkers.api.stats import Day, QueueStats, Stats
from pyworkers.store.processes import ProcessView
from pyworkers.store.search import Search

__all__ = [
    "CronJob",
    "CronSet",
    "Day",
    "DeadSet",
    "JobRecord",
    "JobSet",
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
