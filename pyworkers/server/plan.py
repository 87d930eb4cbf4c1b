"""Plan: the groups of queues that this server serves, and the cron entries.

Pure: computed from the manifest of the application and from the configuration. Used by the master.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pyworkers.config.fields import Config, GroupConfig, QueueConfig
from pyworkers.config.grouping import Grouped, grouped
from pyworkers.config.groups import Only, Sizes, largest, span
from pyworkers.config.stores import Stores
from pyworkers.errors import ConfigError
from pyworkers.ipc.control import GroupFacts, Manifest, QueueFacts
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.flow import features
from pyworkers.protocol.limits import QueueLimit
from pyworkers.server.slots.cron import entries_of

DEFAULT_CONCURRENCY = 5
"""Jobs at a time of a queue or group for which nothing sets a concurrency (Sidekiq 7's default)."""
_SIZES = [item.name for item in fields(Sizes)]


@dataclass(frozen=True, slots=True)
class Group:
    """The queues that one manager serves with one pool; a queue is in one group at most."""

    name: str
    queues: Mapping[str, int]
    """The weight of each queue, in the order of the declaration; 1 in a strict group."""
    strict: bool
    """True if jobs are fetched from the queues in their order; False if by weight."""
    concurrency: int
    """The number of jobs that run at a time."""
    processes: int
    """The number of worker processes, or the most if there is a ``least``."""
    mode: str
    """``process``, ``async`` or ``thread``."""
    limits: Mapping[str, QueueLimit] = field(default_factory=dict)
    """The limits over all servers of the queues that have some."""
    ordered: bool = False
    """True if its one queue is ordered: one job at a time over all servers."""
    least: int | None = None
    """The least number of worker processes: it follows the jobs (``processes = "auto"``)."""
    skip_dead: bool = True
    """False: a job that is dead pauses an ordered queue."""
    idle_s: float = 60.0
    """Seconds without a job after which a worker ends that ``least`` does not need."""

    @property
    def spelled(self) -> str:
        """The number of processes, or their range, to be shown."""
        return str(self.processes) if self.least is None else f"{self.least}-{self.processes}"

    @property
    def shares(self) -> list[int]:
        """The number of jobs that each process holds, as even as possible."""
        least, left = divmod(self.concurrency, self.processes)
        return [least + 1] * left + [least] * (self.processes - left)


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of a server, by the code that was loaded last."""

    manifest: Manifest
    groups: Mapping[str, Group]
    """By name. A queue that is in no declared group is its own group, with the same name."""
    cron: list[CronEntry]

    @property
    def queues(self) -> list[str]:
        """The queues of all groups."""
        return [queue for group in self.groups.values() for queue in group.queues]

    def at(self, stores: Stores, redis: str) -> Plan:
        """The part of the work that is at one Redis: its groups, its cron entries, and its queues."""
        if not stores.several:
            return self
        queues = {
            name: facts for name, facts in self.manifest["queues"].items() if stores.name_of(name) == redis
        }
        manifest: Any = {**self.manifest, "queues": queues}
        groups = {
            name: group for name, group in self.groups.items() if redis in map(stores.name_of, group.queues)
        }
        cron = [entry for entry in self.cron if stores.name_of(entry.queue) == redis]
        return Plan(manifest, groups, cron)

    def single(self) -> Plan:
        """The same work, with one job at a time in each group."""
        groups = {
            name: replace(group, concurrency=1, processes=1, least=None)
            for name, group in self.groups.items()
        }
        return replace(self, groups=groups)

    @property
    def classes(self) -> dict[str, list[str] | None]:
        """The classes of the jobs by queue, also of queues that this server does not serve.

        None for a queue whose handler runs every class.
        """
        queues = self.manifest["queues"].items()
        return {
            name: None if facts["kind"] == "process" else facts.get("classes", []) for name, facts in queues
        }

    @property
    def signatures(self) -> dict[str, list[str | int | None]]:
        """What jobs take, by class: the parameters in words, the least and the most of the arguments."""
        found = ((name, job.get("takes")) for name, job in self.manifest["jobs"].items())
        return {name: takes for name, takes in found if takes is not None}

    @property
    def features(self) -> dict[str, list[str]]:
        """What the jobs of served queues ask for that only servers of pyworkers do, by queue."""
        found = {
            queue: self._features(queue, group) for group in self.groups.values() for queue in group.queues
        }
        return {queue: sorted(names) for queue, names in found.items() if names}

    def _features(self, queue: str, group: Group) -> set[str]:
        facts = self.manifest["queues"].get(queue)
        classes = facts.get("classes", []) if facts and facts["kind"] == "job" else []
        jobs = [self.manifest["jobs"][name] for name in classes]
        found = set().union(*(features.of_envelope(job["envelope"]) for job in jobs))
        if group.ordered:
            found.add(features.ORDERED)
        owner = facts is not None and facts["kind"] == "process" and facts.get("limited")
        if queue in group.limits or owner or any(job.get("limited") for job in jobs):
            found.add(features.LIMITED)
        return found


NOTHING = Plan({"queues": {}, "groups": {}, "jobs": {}, "handlers": [], "cron": [], "hooks": {}}, {}, [])
"""The plan until an application is loaded."""


def plan(manifest: Manifest, config: Config, only: Only, cores: int) -> Plan:
    """The plan for an application. ``cores`` is the number of cores that the server may use.

    Raises ConfigError for a queue without a handler, a queue in two groups, sizes that contradict each other,
    and an invalid cron entry.
    """
    declared = manifest["queues"]
    if not declared:
        raise ConfigError(
            "the application declares no handler", hint="use @worker.job() or @worker.process()"
        )
    groups = {name: _group_config(facts) for name, facts in manifest["groups"].items()}
    found = grouped(declared, groups, config, only)
    served = {group.name: _sized(group, manifest, config, cores) for group in found}
    return Plan(manifest, served, entries_of(manifest, config))


def _group_config(facts: GroupFacts) -> GroupConfig:
    queues = facts["queues"]
    listed = queues if isinstance(queues, dict) else tuple(queues)
    return GroupConfig(listed, facts["concurrency"], facts["processes"], facts["mode"])


def _sized(group: Grouped, manifest: Manifest, config: Config, cores: int) -> Group:
    """The group with its sizes: its own, or else the sizes of its queues."""
    _check_runnable(group, manifest)
    if _is_ordered(group, manifest, config):
        return _ordered(group, manifest, config)
    own, parts = group.own, [_sizes(name, group, manifest["queues"], config) for name in group.queues]
    mode = own.mode or _common_mode(group, parts) or _natural_mode(group, manifest)
    concurrency = own.concurrency or largest(part.concurrency for part in parts) or DEFAULT_CONCURRENCY
    least, processes = span(own.processes or largest(part.processes for part in parts))
    _check_processes(group.name, mode, concurrency, processes)
    concurrency = group.number or concurrency
    if mode == "process":
        processes = concurrency
    processes = min(processes or cores, concurrency)
    if least is not None:
        least = min(least, processes)
    queues, strict = dict.fromkeys(group.queues, 1), True
    if isinstance(group.queues, Mapping):
        queues, strict = dict(group.queues), False
    limits = _limits(queues, config)
    idle_s = config.server.idle_timeout
    return Group(group.name, queues, strict, concurrency, processes, mode, limits, least=least, idle_s=idle_s)


def _limits(queues: Iterable[str], config: Config) -> dict[str, QueueLimit]:
    found = {}
    for queue in queues:
        configured = config.queues.get(queue, QueueConfig())
        if limit := QueueLimit.of(configured.rate, configured.max_running):
            found[queue] = limit
    return found


def _is_ordered(group: Grouped, manifest: Manifest, config: Config) -> bool:
    """True if the queue of the group is ordered. Raises ConfigError if it is one of several."""
    for queue in group.queues:
        facts, configured = manifest["queues"].get(queue), config.queues.get(queue, QueueConfig()).ordered
        if (facts is not None and facts.get("ordered", False)) if configured is None else configured:
            if len(group.queues) > 1:
                raise ConfigError(
                    f"the ordered queue {queue!r} is in the group {group.name!r} with other queues",
                    hint="an ordered queue is its own group",
                )
            return True
    return False


def _ordered(group: Grouped, manifest: Manifest, config: Config) -> Group:
    """The group of an ordered queue. Raises ConfigError for a rate or sizes: it runs one job at a time."""
    [queue] = group.queues
    facts, configured = manifest["queues"].get(queue), config.queues.get(queue, QueueConfig())
    declared = [facts["concurrency"], facts["processes"]] if facts and facts.get("ordered") else []
    given = [configured.concurrency, configured.processes, group.own.concurrency, group.own.processes]
    if any(size not in (None, 1) for size in (*declared, *given, group.number)):
        raise ConfigError(
            f"the ordered queue {queue!r} runs one job at a time: it takes no concurrency and no processes",
            location=f"[queues.{queue}]",
        )
    if configured.rate:
        raise ConfigError(
            f"the ordered queue {queue!r} takes no rate",
            hint="give its jobs one: limits=[worker.limit(…, rate=…)]",
            location=f"[queues.{queue}]",
        )
    mode = group.own.mode or configured.mode or (facts and facts["mode"]) or _natural_mode(group, manifest)
    skip_dead = configured.skip_dead
    if skip_dead is None:
        skip_dead = facts.get("skip_dead", True) if facts else True
    return Group(group.name, {queue: 1}, True, 1, 1, mode, ordered=True, skip_dead=skip_dead)


def _sizes(queue: str, group: Grouped, declared: Mapping[str, QueueFacts], config: Config) -> Sizes:
    """The sizes of one queue, by the file or its handlers. Raises ConfigError where the group has its own."""
    configured, facts = config.queues.get(queue, QueueConfig()), declared.get(queue)
    for name in _SIZES:
        if getattr(configured, name) is not None and getattr(group.own, name) is not None:
            raise ConfigError(
                f"{name} comes from the group {group.name!r}, which has the queue",
                hint=f"set {name} in [groups.{group.name}]",
                location=f"[queues.{queue}]",
            )
    return Sizes(
        configured.concurrency or (facts and facts["concurrency"]),
        configured.processes or (facts and facts["processes"]),
        configured.mode or (facts and facts["mode"]),
    )


def _check_runnable(group: Grouped, manifest: Manifest) -> None:
    """Raise ConfigError for a queue without a handler in an application without jobs."""
    for queue in group.queues:
        if queue not in manifest["queues"] and not manifest["jobs"]:
            raise ConfigError(
                f"no job of the application can be in the queue {queue!r} of the group {group.name!r}",
                hint="declare one with @worker.job(): a process handler runs only the jobs of its own queue",
            )


def _common_mode(group: Grouped, parts: Iterable[Sizes]) -> str | None:
    modes = list(dict.fromkeys(part.mode for part in parts if part.mode))
    if len(modes) > 1:
        raise ConfigError(
            f"the queues of the group {group.name!r} have the modes {' and '.join(modes)}",
            hint="set the mode of the group",
        )
    return next(iter(modes), None)


def _natural_mode(group: Grouped, manifest: Manifest) -> str:
    """``async`` if all jobs of the group are; a queue without handlers may hold all of the application."""
    declared, jobs = manifest["queues"], manifest["jobs"].values()
    facts: list[bool] = []
    for queue in group.queues:
        facts += [declared[queue]["is_async"]] if queue in declared else [job["is_async"] for job in jobs]
    return "async" if all(facts) else "process"


def _check_processes(name: str, mode: str, concurrency: int, processes: int | None) -> None:
    if processes is None or processes == concurrency or (mode != "process" and processes < concurrency):
        return
    text, hint = f"{processes} processes for a concurrency of {concurrency}", "set a larger concurrency"
    if mode == "process":
        text += ", but in mode process each process runs one job"
        hint = 'leave processes out, or set mode = "async" or "thread"'
    raise ConfigError(f"the group {name!r} has {text}", hint=hint)
