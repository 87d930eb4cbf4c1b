"""Causes: problems as people read them, one line for each cause, with the queues that it leaves unserved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyworkers.api.actions import Action
from pyworkers.api.parameters import Parameter
from pyworkers.api.problems import Problem, Severity, by_kind, span
from pyworkers.api.queuestats import QueueStats
from pyworkers.api.stats import Stats
from pyworkers.api.target import Admin
from pyworkers.api.thresholds import HIGH, fix_of
from pyworkers.store import muting
from pyworkers.store.muting import read_muted
from pyworkers.text import counted

__all__ = ["ACTIONS", "Cause", "causes_in", "read_muted", "with_muted"]
# What several problems of one kind are together, and their fix.
_SEVERAL = {
    "lease": (
        "server",
        "lost their leases: other servers of their queues take their jobs over",
        "start a server of their queues, if none runs",
    ),
    "silent": ("server", "are silent since {since}", "look at their hosts and logs"),
    "failing": ("server", "cannot start workers", "look at their logs"),
    "unserved": (
        "queue",
        "have waiting jobs, and no server takes jobs from them",
        "start a server that has handlers of these queues",
    ),
    "held": ("ordered queue", "wait for the job at their head", "pyworkers check prints the commands"),
    "paused": ("queue", "are paused", "resume them"),
    # Its fix says where these thresholds are set.
    HIGH: ("queue", "are above their thresholds", ""),
    "quiet": ("server", "take no more jobs: they are quiet", "stop them if they stay: they do not resume"),
}
# Servers first: queues are not served because of them.
_FIRST = ("silent", "lease", "failing", "unserved")


@dataclass(frozen=True, slots=True)
class Cause:
    """Problems with one cause."""

    problems: Sequence[Problem]
    """All of one code, at least one; queues with the most waiting jobs first."""
    unserved: Sequence[QueueStats] = ()
    """The queues that no server serves because of it, those with the most waiting jobs first."""
    since: str = ""
    """How long the first silent server has been silent, in words."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The waiting jobs of each queue."""
    muted: bool = False
    """True for an hour after a person has muted it, unless it has more problems since."""

    @property
    def code(self) -> str:
        """What kind of problem it is, as ``silent``."""
        return self.problems[0].code

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.problems[0].severity

    @property
    def title(self) -> str:
        """The problems together, as ``3 servers are silent since 2 min``; empty for a single one."""
        if len(self.problems) == 1:
            return ""
        noun, words, _ = _SEVERAL[self.code]
        return f"{counted(len(self.problems), noun)} {words.format(since=self.since)}"

    @property
    def fix(self) -> str:
        """What to do about all of them."""
        if self.code == HIGH:
            return fix_of([problem.fix for problem in self.problems])
        return self.problems[0].fix if len(self.problems) == 1 else _SEVERAL[self.code][2]


def causes_in(stats: Stats, others: Iterable[Problem]) -> list[Cause]:
    """The causes that counts show, and ``others``, of settings and thresholds: errors first, servers before
    queues.
    """
    others = list(others)
    found = {**by_kind(stats), HIGH: [problem for problem in others if problem.code == HIGH]}
    silent = {problem.server for problem in found["silent"]}
    # The lease of a silent server has expired as well.
    found["lease"] = [problem for problem in found["lease"] if problem.server not in silent]
    gone = silent | {problem.server for problem in found["lease"]}
    theirs = {queue for server in stats.servers if server.identity in gone for queue in server.queues}
    left = {problem.queue for problem in found["unserved"] if problem.queue in theirs}
    found["unserved"] = [problem for problem in found["unserved"] if problem.queue not in left]
    by_size = sorted(stats.queues, key=lambda queue: -queue.size)
    unserved = {"silent" if silent else "lease": [queue for queue in by_size if queue.name in left]}
    sizes = {queue.name: queue.size for queue in by_size}
    since = _since(stats)
    causes = [
        Cause(
            sorted(problems, key=lambda problem: -sizes.get(problem.queue, 0)),
            unserved.get(code, ()),
            since,
            sizes,
        )
        for code, problems in found.items()
        if problems
    ]
    single = (Cause([problem]) for problem in others if problem.code != HIGH)
    return sorted([*causes, *single], key=_rank)


def with_muted(causes: Iterable[Cause], muted: Mapping[str, int]) -> list[Cause]:
    """The causes, with those that are muted; ``muted``: the number of problems that each had then."""
    return [replace(cause, muted=len(cause.problems) <= muted.get(cause.code, 0)) for cause in causes]


def _rank(cause: Cause) -> tuple[bool, int]:
    code = cause.code
    return cause.severity is not Severity.ERROR, _FIRST.index(code) if code in _FIRST else len(_FIRST)


def _since(stats: Stats) -> str:
    beats = (server.beat for server in stats.servers if server.silent(stats.now))
    return span(stats.now - min(beats, default=stats.now))


def _mute(admin: Admin, code: str, number: str = "1") -> bool:
    admin.run(muting.mute(admin.keys, code, int(number)))
    return True


def _unmute(admin: Admin, code: str) -> bool:
    return admin.run(muting.unmute(admin.keys, code))


_CODE = Parameter("code", "The kind of the problems, as `silent`.", required=True)
MUTE: Action[Cause] = Action(
    "problem.mute",
    "Leave problems of a kind out of the overview for an hour, unless there are more of them than now.",
    [_CODE, Parameter("number", "How many of them there are now.", default="1")],
    _mute,
    done="{code} is muted for an hour",
    label="Mute for an hour",
    target="{code}",
    offered=lambda cause: not cause.muted,
)
UNMUTE: Action[Cause] = Action(
    "problem.unmute",
    "Show problems of a kind on the overview again.",
    [_CODE],
    _unmute,
    done="{code} is shown again",
    unchanged="{code} is not muted",
    offered=lambda cause: cause.muted,
)
ACTIONS = (MUTE, UNMUTE)
