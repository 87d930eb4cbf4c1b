"""Problems: what delays or endangers jobs now: queues without servers, silent servers, an unsafe Redis."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyworkers.api.columns import Column, Table
from pyworkers.api.queuestats import QueueHead, QueueStats
from pyworkers.api.stats import Stats, read_stats
from pyworkers.api.target import Where, admin_of
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps
from pyworkers.store.flow.classes import declarations, unaware_servers
from pyworkers.store.flow.servers import uninformed
from pyworkers.store.moving import unfinished
from pyworkers.store.preflight import Finding, inspect, judge_classes, judge_moves, judge_servers
from pyworkers.text import counted, valid

# Only the first of each kind: a thousand queues may be paused together.
_MOST = 20
# The first retries, and the misfits of a deployment, take less.
_SHORT_S = 60.0
# A producer chooses the id of a job.
_LONGEST = 200
_FIX = "run pyworkers check, which prints the commands"


class Severity(Enum):
    """How bad a problem is."""

    ERROR = "error"
    """Jobs wait, or may be lost."""
    WARNING = "warning"
    """An order of a person, or a state that ends by itself."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: what it concerns, a message, and the fix.

    ``queue`` or ``server`` is the name or the identity that it concerns, and the subject of the message; both
    are empty for Redis.
    """

    severity: Severity
    code: str
    message: str
    fix: str
    queue: str = ""
    server: str = ""

    @classmethod
    def find(cls, where: Where = None, *, namespace: str | None = None) -> list[Problem]:
        """All problems now. Raises ConfigError, RedisUnavailableError and StoreError."""
        admin = admin_of(where, namespace)
        return problems_in(admin.run(read_stats(admin.keys))) + admin.run(read_unsafe(admin.keys))

    def as_dict(self) -> dict[str, Any]:
        """The problem for JSON."""
        return PROBLEM.as_dict(self)


PROBLEM: Table[Problem] = Table(
    "Problem",
    Column("severity", value=lambda problem, _now: problem.severity.value),
    Column("code"),
    Column("message"),
    Column("fix"),
    Column("queue"),
    Column("server"),
)


def problems_in(stats: Stats) -> list[Problem]:
    """The problems that counts show: at most twenty of each kind, the errors first."""
    found: list[Problem] = []
    for some in by_kind(stats).values():
        found += some[:_MOST]
        if len(some) > _MOST:
            first, more = some[0], len(some) - _MOST
            found.append(Problem(first.severity, first.code, f"{more} more of this kind", first.fix))
    return found


def by_kind(stats: Stats) -> dict[str, list[Problem]]:
    """All problems that counts show, by their code, the errors first."""
    kinds = {
        "lease": _lost,
        "unserved": _unserved,
        "silent": _silent,
        "failing": _failing,
        "held": held,
        "paused": _paused,
        "quiet": _quiet,
    }
    return {code: list(find(stats)) for code, find in kinds.items()}


def read_unsafe(keys: Keys) -> Steps[list[Problem]]:
    """Read the settings of Redis and of servers, as ``pyworkers check`` does; expensive: once a minute."""
    findings = yield from inspect("redis-cli", time.time)
    unsafe = [Finding(found.code, f"Redis: {found.message}", _FIX) for found in findings]
    unsafe += (found for found in judge_moves((yield from unfinished(keys))) if not found.advice)
    unsafe += judge_servers((yield from uninformed(keys)))
    unsafe += judge_classes(unaware_servers((yield from declarations(keys))))
    return [Problem(Severity.ERROR, found.code, found.message, found.fix) for found in unsafe[:_MOST]]


def _lost(stats: Stats) -> Iterator[Problem]:
    for server in stats.lost:
        message = "lost its lease: other servers of its queues take its jobs over"
        fix = "start a server of its queues, if none runs"
        yield Problem(Severity.ERROR, "lease", message, fix, server=server)


def _unserved(stats: Stats) -> Iterator[Problem]:
    for queue in stats.queues:
        if queue.size and not queue.served:
            jobs = counted(queue.size, "waiting job")
            yield Problem(
                Severity.ERROR,
                "unserved",
                f"has {jobs}{_oldest(queue, stats.now)}, and no server takes jobs from it",
                "start a server that has a handler of this queue",
                queue=queue.name,
            )


def _oldest(queue: QueueStats, now: float) -> str:
    """How long the next job of a queue has been waiting, from a minute on."""
    waited_s = queue.latency_s(now)
    return f" (oldest: {span(waited_s)})" if waited_s >= _SHORT_S else ""


def _silent(stats: Stats) -> Iterator[Problem]:
    for server in stats.servers:
        if server.silent(stats.now):
            message = f"wrote its last heartbeat {span(stats.now - server.beat)} ago"
            yield Problem(
                Severity.ERROR, "silent", message, "look at its host and its log", server=server.identity
            )


def _failing(stats: Stats) -> Iterator[Problem]:
    for server in stats.servers:
        if server.state(stats.now) == "failing":
            message = f"cannot start workers, and runs no job of these groups: {server.failing}"
            fix = "look at its log: worker.boot_failed and reload.failed have the traceback"
            yield Problem(Severity.ERROR, "failing", message, fix, server=server.identity)


def held(stats: Stats) -> Iterator[Problem]:
    """The ordered queues whose jobs wait for the one at the head, for more than a minute."""
    for queue in stats.queues:
        if (head := queue.head) is None:
            continue
        since = stats.now if head.since is None else head.since
        if max(stats.now - since, head.retry_at - stats.now) > _SHORT_S:
            message, fix = _holding(head, stats.now), _release(queue, head)
            yield Problem(Severity.WARNING, "held", message, fix, queue=queue.name)


def _holding(head: QueueHead, now: float) -> str:
    job = f"the job {_cut(head.jid)} ({_cut(head.job_class)})" if head.jid else "the job"
    again = f"runs again in {span(head.retry_at - now)}"
    if head.since is None:
        return f"waits for {job} at its head, which {again}"
    why = "does not fit the active server" if head.misfit else f"fails ({_cut(head.error_class)})"
    return f"has waited for {span(now - head.since)} for {job} at its head, which {why} and {again}"


def _release(queue: QueueStats, head: QueueHead) -> str:
    name, jid = shlex.quote(queue.name), shlex.quote(head.jid)
    if not head.jid or head.jid != _cut(head.jid):
        return f"pyworkers jobs {valid(name)} shows it"
    if head.misfit:
        return f"start a server with its class and parameters, or end it: pyworkers cancel {jid}"
    return f"run it now: pyworkers resume {valid(name)}; or end it: pyworkers cancel {jid}"


def _cut(text: str) -> str:
    return valid(text[:_LONGEST])


def span(seconds: float) -> str:
    """A length of time in the words of a message."""
    if seconds < 120:
        return f"{max(0, int(seconds))} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min"
    large, small, size = ("h", "min", 60) if seconds < 172_800 else ("d", "h", 3600)
    whole, rest = divmod(int(seconds // size), 60 if small == "min" else 24)
    return f"{whole:,} {large} {rest} {small}" if rest else f"{whole:,} {large}"


def _paused(stats: Stats) -> Iterator[Problem]:
    for queue in stats.queues:
        if queue.paused:
            waiting = f", and {queue.size:,} wait{_oldest(queue, stats.now)}" if queue.size else ""
            message = f"is paused: no job of it starts{waiting}"
            yield Problem(Severity.WARNING, "paused", message, "resume it", queue=queue.name)


def _quiet(stats: Stats) -> Iterator[Problem]:
    for server in stats.servers:
        if server.state(stats.now) == "quiet":
            # Other programs do not say which of them.
            message = "takes no more jobs: it is quiet" + (
                ", or it is stopping" if server.look is None else ""
            )
            fix = "stop it if it stays: it does not resume"
            yield Problem(Severity.WARNING, "quiet", message, fix, server=server.identity)
