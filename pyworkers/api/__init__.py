"""Administration API: queues, job sets, processes, cron entries and statistics, by Sidekiq's names.

Used by the command line and by users' programs; the server never imports it. It connects at its first use.
Every change is conditional on one removal: a job that two clients (Sidekiq's Web UI is one) change at once is
moved once and never lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyworkers.lazy import getter

if TYPE_CHECKING:
    from pyworkers.api.audit import Action, AuditEntry, AuditLog, AuditPage, read_audit
    from pyworkers.api.batches import (
        Batch,
        BatchCallback,
        BatchEntry,
        BatchPage,
        BatchSet,
        BatchView,
        Member,
        MemberPage,
        read_batch,
        read_batch_page,
        read_members,
    )
    from pyworkers.api.browse.errors import ErrorGroup, ErrorPage, read_errors
    from pyworkers.api.browse.undo import Deletion, Restored
    from pyworkers.api.cron import CronSet
    from pyworkers.api.cronjob import CronJob, CronPage, read_cron_job, read_cron_page
    from pyworkers.api.deploys import Deploy, DeploySet
    from pyworkers.api.finished import (
        FinishedFilter,
        FinishedJob,
        FinishedPage,
        FinishedSet,
        read_finished,
    )
    from pyworkers.api.gauges import Gauges
    from pyworkers.api.groups import GroupStats
    from pyworkers.api.joblog import JobLog, read_joblog
    from pyworkers.api.limits import LimitHolder, LimitPage, LimitSet, LimitView, read_limit, read_limit_page
    from pyworkers.api.locks import Lock, LockPage, LockSet, StoredLock, read_lock_page
    from pyworkers.api.metrics import ClassMetrics, Metrics, MetricsPart, Period
    from pyworkers.api.moving import GivenBack, MoveCounts, QueueMove
    from pyworkers.api.problems import Problem, Severity
    from pyworkers.api.processes import Process, ProcessPage, ProcessSet, read_process, read_processes
    from pyworkers.api.queue import Queue, QueuedJob
    from pyworkers.api.queuestats import QueueHead, QueueStats
    from pyworkers.api.record import JobRecord
    from pyworkers.api.running import Work, WorkPage, WorkSet, read_stack, read_works
    from pyworkers.api.sets import DeadSet, JobSet, RetrySet, ScheduledSet, SortedEntry
    from pyworkers.api.stats import Day, Stats
    from pyworkers.api.thresholds import ThresholdSet
    from pyworkers.config.thresholds import Threshold
    from pyworkers.protocol.flow.runs import CronRun
    from pyworkers.protocol.limits import LimitStats
    from pyworkers.protocol.stacks import JobStack
    from pyworkers.protocol.status import Cancelled
    from pyworkers.store.processes.signals import Signal
    from pyworkers.store.processes.views import ProcessView
    from pyworkers.store.search import Search
    from pyworkers.store.undo import DeletionNumbers
    from pyworkers.store.views.servers import ServerView, WorkerView

__all__ = [
    "Action",
    "AuditEntry",
    "AuditLog",
    "AuditPage",
    "Batch",
    "BatchCallback",
    "BatchEntry",
    "BatchPage",
    "BatchSet",
    "BatchView",
    "Cancelled",
    "ClassMetrics",
    "CronJob",
    "CronPage",
    "CronRun",
    "CronSet",
    "Day",
    "DeadSet",
    "Deletion",
    "DeletionNumbers",
    "Deploy",
    "DeploySet",
    "ErrorGroup",
    "ErrorPage",
    "FinishedFilter",
    "FinishedJob",
    "FinishedPage",
    "FinishedSet",
    "Gauges",
    "GivenBack",
    "GroupStats",
    "JobLog",
    "JobRecord",
    "JobSet",
    "JobStack",
    "LimitHolder",
    "LimitPage",
    "LimitSet",
    "LimitStats",
    "LimitView",
    "Lock",
    "LockPage",
    "LockSet",
    "Member",
    "MemberPage",
    "Metrics",
    "MetricsPart",
    "MoveCounts",
    "Period",
    "Problem",
    "Process",
    "ProcessPage",
    "ProcessSet",
    "ProcessView",
    "Queue",
    "QueueHead",
    "QueueMove",
    "QueueStats",
    "QueuedJob",
    "Restored",
    "RetrySet",
    "ScheduledSet",
    "Search",
    "ServerView",
    "Severity",
    "Signal",
    "SortedEntry",
    "Stats",
    "StoredLock",
    "Threshold",
    "ThresholdSet",
    "Work",
    "WorkPage",
    "WorkSet",
    "WorkerView",
    "read_audit",
    "read_batch",
    "read_batch_page",
    "read_cron_job",
    "read_cron_page",
    "read_errors",
    "read_finished",
    "read_joblog",
    "read_limit",
    "read_limit_page",
    "read_lock_page",
    "read_members",
    "read_process",
    "read_processes",
    "read_stack",
    "read_works",
]

if not TYPE_CHECKING:  # With it, a type checker would take any name.
    __getattr__ = getter(
        __name__,
        {
            "pyworkers.api.audit": ("Action", "AuditEntry", "AuditLog", "AuditPage", "read_audit"),
            "pyworkers.api.batches": (
                "Batch",
                "BatchCallback",
                "BatchEntry",
                "BatchPage",
                "BatchSet",
                "BatchView",
                "Member",
                "MemberPage",
                "read_batch",
                "read_batch_page",
                "read_members",
            ),
            "pyworkers.api.browse.errors": ("ErrorGroup", "ErrorPage", "read_errors"),
            "pyworkers.api.browse.undo": ("Deletion", "Restored"),
            "pyworkers.api.cron": ("CronSet",),
            "pyworkers.api.cronjob": ("CronJob", "CronPage", "read_cron_job", "read_cron_page"),
            "pyworkers.api.deploys": ("Deploy", "DeploySet"),
            "pyworkers.api.finished": (
                "FinishedFilter",
                "FinishedJob",
                "FinishedPage",
                "FinishedSet",
                "read_finished",
            ),
            "pyworkers.api.gauges": ("Gauges",),
            "pyworkers.api.groups": ("GroupStats",),
            "pyworkers.api.joblog": ("JobLog", "read_joblog"),
            "pyworkers.api.limits": (
                "LimitHolder",
                "LimitPage",
                "LimitSet",
                "LimitView",
                "read_limit",
                "read_limit_page",
            ),
            "pyworkers.api.locks": ("Lock", "LockPage", "LockSet", "StoredLock", "read_lock_page"),
            "pyworkers.api.metrics": ("ClassMetrics", "Metrics", "MetricsPart", "Period"),
            "pyworkers.api.moving": ("GivenBack", "MoveCounts", "QueueMove"),
            "pyworkers.api.problems": ("Problem", "Severity"),
            "pyworkers.api.processes": (
                "Process",
                "ProcessPage",
                "ProcessSet",
                "read_process",
                "read_processes",
            ),
            "pyworkers.api.queue": ("Queue", "QueuedJob"),
            "pyworkers.api.queuestats": ("QueueHead", "QueueStats"),
            "pyworkers.api.record": ("JobRecord",),
            "pyworkers.api.running": ("Work", "WorkPage", "WorkSet", "read_stack", "read_works"),
            "pyworkers.api.sets": ("DeadSet", "JobSet", "RetrySet", "ScheduledSet", "SortedEntry"),
            "pyworkers.api.stats": ("Day", "Stats"),
            "pyworkers.api.thresholds": ("ThresholdSet",),
            "pyworkers.config.thresholds": ("Threshold",),
            "pyworkers.protocol.flow.runs": ("CronRun",),
            "pyworkers.protocol.limits": ("LimitStats",),
            "pyworkers.protocol.stacks": ("JobStack",),
            "pyworkers.protocol.status": ("Cancelled",),
            "pyworkers.store.processes.signals": ("Signal",),
            "pyworkers.store.processes.views": ("ProcessView",),
            "pyworkers.store.search": ("Search",),
            "pyworkers.store.undo": ("DeletionNumbers",),
            "pyworkers.store.views.servers": ("ServerView", "WorkerView"),
        },
    )


def __dir__() -> list[str]:
    return __all__
