"""WorkSet: the running jobs of all servers, Sidekiq's included."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyworkers.api.actions import Action, Confirmation, Given
from pyworkers.api.columns import Column, Kind, Table, page_of
from pyworkers.api.parameters import Parameter
from pyworkers.api.record import JOB, PROGRESS, JobRecord
from pyworkers.api.target import Admin, AtRedis, Countable
from pyworkers.errors import BadArgumentError
from pyworkers.protocol.flow.track import fits
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.stacks import JobStack
from pyworkers.protocol.status import Cancelled, Progress
from pyworkers.store.calls import Steps
from pyworkers.store.cancel import cancel_running
from pyworkers.store.flow.cancelling import Wanted, cancel_jobs
from pyworkers.store.heartbeat import clock
from pyworkers.store.processes import stacks
from pyworkers.store.processes.reading import Processes, Works
from pyworkers.store.processes.views import WorkView
from pyworkers.store.values import encodable
from pyworkers.store.views import running
from pyworkers.store.views.running import read_memory, read_statuses
from pyworkers.text import counted


class Work(JobRecord):
    """One running job, as its server reported it last."""

    def __init__(self, about: WorkView, progress: Progress | None = None, rss_kb: int = 0) -> None:
        super().__init__(about.payload)
        self.about = about
        self.progress = progress
        """How far the job is; None if it is not tracked, or has not said."""
        self.rss_kb = rss_kb
        """The memory in KiB of the worker process that runs it; 0 if unknown."""

    @property
    def identity(self) -> str:
        """The identity of the server that runs it."""
        return self.about.identity

    @property
    def thread(self) -> str:
        """The name of the thread, or of the worker process, that runs it."""
        return self.about.thread

    @property
    def queue(self) -> str:
        """The queue that the job was taken from."""
        return self.about.queue

    @property
    def run_at(self) -> float:
        """The start of the run in epoch seconds; 0 if unknown."""
        return self.about.run_at

    @property
    def limit_at(self) -> float | None:
        """The end of its time limit in epoch seconds; None without a limit, or if unknown."""
        return self.about.limit_at

    def as_dict(self) -> dict[str, Any]:
        """The job for JSON, with its server, thread and start, its progress, and its worker's memory."""
        return WORK.as_dict(self)


def _done(work: Work, _now: float) -> str:
    progress = work.progress
    if progress is None:
        return ""
    return f"{progress.done:g}" + ("" if progress.total is None else f"/{progress.total:g}")


WORK: Table[Work] = Table(
    "Work",
    Column("identity", title="Identity", place="servers", about="The server.", cut=3),
    Column("thread", title="Thread", cut=2),
    Column("run_at", Kind.MOMENT, "Started", live=True),
    Column("limit_at", Kind.MOMENT, "Time limit", nullable=True),
    Column("rss_kb", Kind.MEMORY, "Memory", live=True, about="The memory of its worker process in KiB."),
    Column("progress", Kind.PROGRESS, "Progress", table=PROGRESS, nullable=True, live=True),
    Column("done", title="Progress", value=_done, only_shown=True),
    *JOB.columns.values(),
)
WORKS = page_of("Works", "works", WORK, Column("complete", Kind.FLAG))


@dataclass(frozen=True, slots=True)
class WorkPage:
    """Some of the running jobs, the longest first, from rank ``first`` on.

    ``total`` jobs are in order; if these are not ``complete``, more run than can be put in order. ``at`` is
    the time by Redis' clock, in epoch seconds.
    """

    first: int
    total: int
    works: Sequence[Work]
    complete: bool
    at: float

    def as_dict(self) -> dict[str, Any]:
        """The page for JSON."""
        return WORKS.as_dict(self)


def read_works(
    keys: Keys, first: int = 0, count: int | None = 50, identity: str = "", most: int = running.MOST
) -> Steps[WorkPage]:
    """A page of the running jobs; with ``identity``, of one server.

    Above ``most`` running jobs, the jobs of further servers are left out.
    """
    at = yield from clock()
    view = yield from running.read_running(keys, first, count, identity, most)
    works = [Work(about) for about in view.works]
    jids = {work.jid for work in works if encodable(work.jid)}
    statuses = yield from read_statuses(keys, sorted(jids))
    memory = yield from read_memory(keys, (work.identity for work in works))
    return WorkPage(
        first,
        view.total,
        [
            Work(
                work.about,
                statuses[work.jid].progress if work.jid in statuses else None,
                memory.get((work.identity, work.thread.partition(".")[0]), 0),
            )
            for work in works
        ],
        view.complete,
        at,
    )


def read_tagged(keys: Keys, tag: str) -> Steps[WorkPage]:
    """All running jobs with a tag, the longest first, without their progress and memory."""
    at = yield from clock()
    view = yield from running.read_running(keys, 0, None)
    works = [work for work in map(Work, view.works) if tag in work.tags]
    return WorkPage(0, len(works), works, view.complete, at)


def read_held(keys: Keys, identity: str, count: int = 50) -> Steps[WorkPage]:
    """What a server without heartbeats was running, and what no other server has given back."""
    at = yield from clock()
    view = yield from running.read_held(keys, identity, count)
    return WorkPage(0, view.total, [Work(about) for about in view.works], True, at)


def read_stack(keys: Keys, jid: str) -> Steps[JobStack | None]:
    """The last answer about a job, or a request that has no answer yet; None if none was asked for."""
    return (yield from stacks.read(keys, jid)) if fits(jid) else None


JOB_STACK: Table[JobStack] = Table(
    "JobStack",
    Column("jid"),
    Column("server", title="Server", place="servers", about="The identity of the server."),
    Column("queue", title="Queue", place="queues"),
    Column("at", Kind.MOMENT, "Answered", about="Of the answer; of the request while there is none."),
    Column("answered", Kind.FLAG),
    Column("pid", Kind.COUNT, "Process", about="The worker process; 0 if the job did not run any more."),
    Column("state", title="State", about="In the words of the system, e.g. S (sleeping)."),
    Column("rss_kb", Kind.MEMORY, "Resident memory", about="The resident memory of the process in KiB."),
    Column("peak_kb", Kind.MEMORY, "Peak memory", about="The most that it has had, in KiB."),
    Column("text", about="The stacks, the job's first."),
    Column("problem", about="Why the stacks are missing or incomplete."),
)


class WorkSet(AtRedis, Countable):
    """The running jobs. All methods raise RedisUnavailableError and StoreError."""

    def __iter__(self) -> Iterator[Work]:
        keys = self._admin.keys
        identities = [about.identity for about in self._admin.run(Processes(keys).rest())]
        return (Work(about) for about in self._admin.each(Works(keys, identities)))

    def page(self, first: int = 0, count: int | None = None) -> WorkPage:
        """The running jobs from rank ``first`` on, the longest first; ``count`` None: all of them."""
        most = running.MOST if count is not None else sys.maxsize
        return self._admin.run(read_works(self._admin.keys, first, count, most=most))

    @property
    def size(self) -> int:
        """The number of running jobs that the servers report."""
        return sum(about.busy for about in self._admin.run(Processes(self._admin.keys).rest()))

    def find_work(self, jid: str) -> Work | None:
        """The running job with that id; None if there is none."""
        return next((work for work in self if work.jid == jid), None)

    def ask_stack(self, jid: str, identity: str, queue: str) -> bool:
        """Ask the server ``identity`` for the stack of a job of ``queue``, and for the memory of its process.

        ``stack`` returns the answer, within seconds. False for a server of another program, which is not
        asked. Raises BadArgumentError for an invalid id.
        """
        if not fits(jid):
            raise BadArgumentError(f"not the id of a job: {jid!r}")
        return self._admin.run(stacks.ask(self._admin.keys, JobStack(jid, identity, queue)))

    def stack(self, jid: str) -> JobStack | None:
        """The last answer about a job, or a request that has no answer yet; None if none was asked for."""
        return self._admin.run(read_stack(self._admin.keys, jid))

    def cancel(self, jid: str, identity: str, queue: str) -> Cancelled:
        """Cancel a job of ``queue`` that the server ``identity`` runs.

        As ``Client.cancel``, but it searches nothing: UNKNOWN if it does not run there any more.
        Raises BadArgumentError for an empty id.
        """
        return self._admin.run(cancel_running(self._admin.keys, jid, identity, queue))


def _queues(admin: Admin, given: Given) -> Iterable[str]:
    """The queue that is named, and what the server says: one of another program is asked by the id alone."""
    view = admin.run(running.read_running(admin.keys, 0, None, given["server"], running.MOST))
    works = (Work(about) for about in view.works)
    return {given["queue"], *(work.queue for work in works if work.jid == given["jid"])}


CANCEL: Action[Work] = Action(
    "job.cancel",
    "Cancel a running job.",
    [
        Parameter("jid", "The id of the job.", required=True),
        Parameter("server", "The identity of its server.", required=True),
        Parameter("queue", "Its queue.", required=True),
    ],
    lambda admin, jid, server, queue: WorkSet(admin).cancel(jid, server, queue),
    queues=_queues,
    done={
        Cancelled.RUNNING: "{jid} is cancelled: JobCancelled is raised in it, its worker is killed 2 s later",
        Cancelled.ELSEWHERE: "{jid} runs in Sidekiq, which ends it if it is iterable; otherwise it continues",
        Cancelled.REMOVED: "{jid} is removed",
    },
    unchanged="{jid} does not run there any more: nothing was changed",
    nothing=(Cancelled.UNKNOWN,),
    missing="job",
    dangerous=True,
    offered=lambda work: bool(work.jid),
)
STACK: Action[Work] = Action(
    "job.stack",
    "Ask for the stack of a running job, and for the memory of its process.",
    CANCEL.fields,
    lambda admin, jid, server, queue: WorkSet(admin).ask_stack(jid, server, queue),
    queues=_queues,
    done="Asked for the stack of {jid}: it is on the page of the job in a few seconds",
    unchanged="{server} is no live server of pyworkers: only these show stacks",
    missing="server",
    offered=lambda work: bool(work.jid),
)
ACTIONS = (CANCEL, STACK)


def _cancel_tag(admin: Admin, tag: str) -> str:
    found = admin.run(cancel_jobs(admin.keys, Wanted("tag", tag)))
    if not found.removed and not found.running:
        return ""
    return f"{counted(found.removed, 'job')} removed, {found.running:,} running asked to end"


def _ask_to_cancel_tag(_admin: Admin, tag: str) -> Confirmation:
    text = (
        "Jobs that wait, are scheduled or wait for a retry are removed, running ones are asked to end. This "
        "cannot be undone. Dead jobs stay."
    )
    return Confirmation(f"Cancel all jobs with the tag {tag} now?", text, "Cancel all jobs with this tag")


CANCEL_TAG: Action[None] = Action(
    "jobs.cancel",
    "Cancel all jobs with this tag: those that wait are removed, running ones are asked to end.",
    [Parameter("tag", "The tag.", required=True)],
    _cancel_tag,
    done="Jobs with the tag {tag} are cancelled: {result}",
    unchanged="No job with the tag {tag} waits or runs: nothing was changed",
    nothing=("",),
    missing="job",
    target="tag {tag}",
    label="Cancel all jobs with this tag",
    dangerous=True,
    asks=_ask_to_cancel_tag,
)
