"""The graph of a batch: its members and the batches inside it, as far as they are named, with their states.

Run by ``api``, never by the server. It changes nothing. A batch names its first members when it is made
(plans.py), and the batches inside it (enlist.lua); all others are numbers of its status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyworkers.protocol import timestamps
from pyworkers.protocol.flow.plans import MOST_STEPS_NAMED, BatchStatus
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import JobState
from pyworkers.store.calls import Command, Mode, Steps, command, decoded, every
from pyworkers.store.flow.batchviews import SETS, BatchCallback, callbacks_of, inner_of, read_batches

_MOST_LEVELS, _MOST_BATCHES, _MOST_JOBS = 6, 60, 200
_AS_MEMBER = {"succeeded": "done", "dead": "dead", "failing": "failed"}


@dataclass(frozen=True, slots=True)
class JobNode:
    """A member that is a job. Times are in epoch seconds, None if unknown: only tracked jobs have them."""

    jid: str
    job_class: str
    """Of a long one the end; empty if it is unknown."""
    state: str
    """``waiting``, ``running``, ``failed``, ``dead``, ``done``, or the kind of its end (``GONE``)."""
    started_at: float | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class BatchNode:
    """A batch with what it names, in order, and the numbers of all others."""

    status: BatchStatus
    callbacks: tuple[BatchCallback, ...] = ()
    members: tuple[JobNode | BatchNode, ...] = ()
    others: tuple[tuple[str, int], ...] = ()
    """By state."""


@dataclass
class _Read:
    """A batch as it was read."""

    status: BatchStatus
    facts: Mapping[bytes, bytes]
    names: Sequence[tuple[str, str]]
    """The members that it names, each an id and a class; no class for a batch."""


def read_graph(keys: Keys, batch: str) -> Steps[BatchNode | None]:
    """Read the graph of a batch: at most six levels, 60 batches and 200 jobs. None if it is unknown."""
    known: dict[str, _Read] = {}
    level = [batch]
    for _ in range(_MOST_LEVELS):
        known.update((yield from _read_batches(keys, level)))
        inner = dict.fromkeys(
            name for one in level if one in known for name, job_class in known[one].names if not job_class
        )
        level = [name for name in inner if name not in known][: _MOST_BATCHES - len(known)]
        if not level:
            break
    if batch not in known:
        return None
    jobs = yield from _read_jobs(keys, known)
    return _node(batch, known, jobs, set())


def _read_batches(keys: Keys, batches: Sequence[str]) -> Steps[dict[str, _Read]]:
    found = yield from read_batches(keys, batches)
    return {name: _Read(read.status, read.stored, _names(read.stored)) for name, read in found.items()}


def _names(about: Mapping[bytes, bytes]) -> list[tuple[str, str]]:
    """The members that a batch names: those in their order, then the batches that were added later."""
    stored = (about.get(b"member:%d" % place) for place in range(MOST_STEPS_NAMED))
    names: dict[str, str] = {}
    for text in stored:
        if text is not None:
            name, space, job_class = decoded(text).partition(" ")
            names.setdefault(name, (job_class or "?") if space else "")
    for inner in inner_of(about):
        names.setdefault(inner, "")
    return list(names.items())


def _read_jobs(keys: Keys, known: Mapping[str, _Read]) -> Steps[dict[tuple[str, str], JobNode]]:
    """The jobs that the batches name, by batch and jid."""
    named = [
        (batch, jid, job_class) for batch, read in known.items() for jid, job_class in read.names if job_class
    ][:_MOST_JOBS]
    commands = [one for batch, jid, _ in named for one in _about_job(keys, batch, jid)]
    answers = iter((yield from every(commands, Mode.LENIENT)))
    found = {}
    for batch, jid, job_class in named:
        in_sets, ended, tracked = [next(answers) for _ in SETS], next(answers), next(answers) or [None] * 3
        state, started_at, finished_at = tracked
        where = next((word for word, here in zip(SETS, in_sets, strict=True) if here), "")
        words = where or (decoded(ended) if ended else "done")
        if where == "waiting" and state == JobState.RUNNING.encode():
            words = JobState.RUNNING.value
        times = map(timestamps.of_text, (started_at, finished_at))
        found[batch, jid] = JobNode(jid, job_class, words, *times)
    return found


def _about_job(keys: Keys, batch: str, jid: str) -> list[Command]:
    key = keys.batch(batch)
    return [
        *(command("SISMEMBER", key + part, jid) for part in SETS.values()),
        command("HGET", key + ":ended", jid),
        command("HMGET", keys.job(jid), "state", "started_at", "finished_at"),
    ]


def _node(
    batch: str, known: Mapping[str, _Read], jobs: Mapping[tuple[str, str], JobNode], seen: set[str]
) -> BatchNode:
    """The node of a batch. Each is drawn once: one that another program has written may be its own member."""
    read = known[batch]
    seen.add(batch)
    members: list[JobNode | BatchNode] = []
    for name, job_class in read.names:
        if job_class:
            members += [jobs[batch, name]] if (batch, name) in jobs else []
        elif name in known and name not in seen:
            members.append(_node(name, known, jobs, seen))
    return BatchNode(
        read.status, tuple(callbacks_of(read.facts)), tuple(members), tuple(_others(read.status, members))
    )


def _others(status: BatchStatus, shown: Sequence[JobNode | BatchNode]) -> Iterator[tuple[str, int]]:
    """The numbers of the members that are not shown, by state."""
    known = Counter(_state_of(member) for member in shown)
    numbers = {
        "waiting": status.pending - status.failed,
        "failed": status.failed,
        "dead": status.dead,
        **dict(status.kinds),
        "done": status.done,
    }
    left = status.total - len(shown)
    for state, number in numbers.items():
        # A running job is a waiting member, and what was read later may differ by one.
        more = min(left, number - known[state])
        if more > 0:
            left -= more
            yield state, more


def _state_of(member: JobNode | BatchNode) -> str:
    """The state as a member of the batch around it."""
    if isinstance(member, JobNode):
        return "waiting" if member.state == JobState.RUNNING else member.state
    status = member.status
    if status.cancel_at is not None and not status.pending:
        return "cancelled"
    return _AS_MEMBER.get(status.state, "waiting")
