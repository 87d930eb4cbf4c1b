"""Facts: a server at one moment, and the texts that describe it in its heartbeat and on its HTTP endpoint.

Built in the master. It reads neither Redis nor a clock.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyworkers.protocol import envelope, flow
from pyworkers.server.incarnation import host_name
from pyworkers.server.plan import Group
from pyworkers.server.pool.worker import WorkerFacts
from pyworkers.server.running import Running
from pyworkers.version import __version__

# Some hundred classes or queues, a few kilobytes in each heartbeat.
_MOST_CHARACTERS = 16_384


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that a heartbeat shows."""

    identity: str
    groups: Mapping[str, Group]
    running: list[Running]
    quiet: bool
    pids: list[int]
    """All processes of the tree."""
    classes: Mapping[str, list[str] | None] = field(default_factory=dict)
    """The classes of the jobs by queue; None for a queue whose handler runs every class."""
    workers: Sequence[WorkerFacts] = ()
    """The worker processes."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """The number of workers by group that ended unexpectedly."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Why the groups that have no worker cannot start one."""
    features: Mapping[str, list[str]] = field(default_factory=dict)
    """What the jobs ask for that only servers of pyworkers do (protocol/flow/features.py), by queue."""
    stops_at: float | None = None
    """The end of a stop that has begun, in epoch seconds by this machine's clock."""
    signatures: Mapping[str, list[str | int | None]] = field(default_factory=dict)
    """What jobs take, by class: the parameters in words, the least and the most of the arguments."""

    @property
    def concurrency(self) -> int:
        """The number of jobs that run at once, in all groups together."""
        return sum(group.concurrency for group in self.groups.values())

    @property
    def queues(self) -> list[str]:
        """The queues of all groups."""
        return [queue for group in self.groups.values() for queue in group.queues]

    @property
    def busy(self) -> dict[str, int]:
        """The number of running jobs by group; a job of a queue that a reload has dropped is in none."""
        group_of = {queue: name for name, group in self.groups.items() for queue in group.queues}
        running = Counter(group_of.get(job.queue) for job in self.running)
        return {name: running[name] for name in self.groups}


def info(facts: Facts, started_at: float) -> str:
    """The JSON text about the process, with the keys of all Sidekiq versions (protocol.md, Servers)."""
    capsules = {group.name: _capsule(group) for group in facts.groups.values()}
    about = {
        "hostname": host_name(),
        "started_at": started_at,
        "pid": os.getpid(),
        "tag": _tag(),
        "concurrency": facts.concurrency,
        "queues": facts.queues,
        "weights": [capsule["weights"] for capsule in capsules.values()],
        "capsules": capsules,
        "labels": [_label(group) for group in facts.groups.values() if _is_shared(group)],
        "identity": facts.identity,
        "version": __version__,
        "flow": flow.VERSION,
        "reloads": True,
        "embedded": False,
    }
    return envelope.encode(about)


def declared(facts: Facts) -> str:
    """The classes by queue as JSON, for ``pyworkers check``; empty if they are too many to be written."""
    return _bounded(facts.classes)


def signed(facts: Facts) -> str:
    """What jobs take, by class, as JSON, for the dashboard; empty if it is too much to be written."""
    return _bounded(facts.signatures)


def featured(facts: Facts) -> str:
    """The features by queue as JSON; empty if they are too many to be written."""
    return _bounded(facts.features)


def _bounded(value: object) -> str:
    text = envelope.encode(value)
    return text if len(text) <= _MOST_CHARACTERS else ""


def described(facts: Facts) -> dict[str, dict[str, object]]:
    """The groups for JSON, by name: queues, sizes, running jobs, workers by state, and how many crashed."""
    busy = facts.busy
    workers: dict[str, Counter[str]] = {name: Counter() for name in facts.groups}
    for worker in facts.workers:
        # A group that a reload has dropped may still have workers.
        if worker.group in workers:
            workers[worker.group][worker.state] += 1
    return {
        name: {
            "queues": dict(group.queues),
            "strict": group.strict,
            "mode": group.mode,
            "processes": group.processes if group.least is None else workers[name].total(),
            "concurrency": group.concurrency,
            "busy": busy[name],
            "ordered": group.ordered,
            "workers": dict(workers[name]),
            "restarts": facts.restarts.get(name, 0),
            **({"failing": facts.failing[name]} if name in facts.failing else {}),
        }
        for name, group in facts.groups.items()
    }


def _capsule(group: Group) -> dict[str, Any]:
    """A group as Sidekiq's ``Capsule#to_h`` describes a capsule; the weights of a strict one are 0."""
    weights = dict.fromkeys(group.queues, 0) if group.strict else dict(group.queues)
    mode = "strict" if group.strict else "random" if set(weights.values()) == {1} else "weighted"
    return {"concurrency": group.concurrency, "mode": mode, "weights": weights}


def _is_shared(group: Group) -> bool:
    """True if several queues share its workers, or several jobs a worker."""
    return len(group.queues) > 1 or group.mode != "process"


def _label(group: Group) -> str:
    """``web: async, 50 in 4``: mode, concurrency and number of processes."""
    return f"{group.name}: {group.mode}, {group.concurrency} in {group.spelled}"


def work(job: Running, payload: str) -> str:
    """The JSON text that describes a running job."""
    about = {"queue": job.queue, "payload": payload, "run_at": int(job.started_at)}
    return envelope.encode(about if job.limit_at is None else {**about, "limit_at": int(job.limit_at)})


def _tag() -> str:
    """Sidekiq's tag of a process: the name of its working directory."""
    with suppress(OSError):
        return Path.cwd().name
    return ""


FEW = 32
"""This many workers are in each heartbeat: some 2 KB. More are shown only while a viewer is active."""
# Some 60 KB in a heartbeat.
_MOST_WORKERS = 1000


def listed_workers(workers: Sequence[WorkerFacts], kb_of: Callable[[int], int], *, watched: bool) -> str:
    """The workers as JSON; empty if they are many and there is no viewer."""
    if len(workers) > FEW and not watched:
        return ""
    return envelope.encode(
        [
            [
                worker.group,
                worker.pid,
                worker.state,
                kb_of(worker.pid),
                worker.jobs_done,
                int(worker.started_at),
            ]
            for worker in workers[:_MOST_WORKERS]
        ]
    )
