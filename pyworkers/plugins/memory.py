"""Batches in memory, for ``pyworkers.testing``: they count and fire as those in Redis do.

Used in the process of a test. It is also the model that the scripts are checked against.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from pyworkers.enqueueing import clock
from pyworkers.errors import BatchCancelledError, BatchError, JobFailedError, ResultTimeout
from pyworkers.protocol import envelope
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.effects import CountMember, Effect, Push
from pyworkers.protocol.flow.batch import due
from pyworkers.protocol.flow.filling import filled
from pyworkers.protocol.flow.plans import GONE, LEFT_OUT, MOST_INNER, BatchPlan, BatchStatus, tags_in

_LIFE_S = 90 * 86_400.0
_LIFE_ENDED_S = 86_400.0
# Of a job that was not pushed, because it is a duplicate: Redis has not counted it in.
_OUT = "out"


@dataclass
class _Batch:
    fields: dict[str, str]
    then: list[str]
    created_at: float
    ends_at: float = math.inf
    """When it is forgotten: 90 days after its last change, one day after success."""
    members: dict[str, str] = field(default_factory=dict)
    """Those that are not done: ``new``, ``failed``, ``dead``, or one of ``GONE``."""
    done: int = 0
    fired: dict[str, float] = field(default_factory=dict)
    reason: tuple[str, str] = ("", "")
    """Of its death: the kind of the first end that was not done, and the member."""
    results: dict[int, str] = field(default_factory=dict)
    inner: list[str] = field(default_factory=list)
    """The batches inside it."""

    @property
    def holds(self) -> int:
        return sum(member.startswith("hold:") for member in self.members)

    @property
    def cancelled(self) -> bool:
        return "cancel" in self.fired

    @property
    def left(self) -> int:
        """The members that have not ended."""
        return self.number("new") - self.holds + self.number("failed")

    def number(self, state: str) -> int:
        return sum(other == state for other in self.members.values())

    def touch(self) -> None:
        if "success" not in self.fired:
            self.ends_at = clock.time() + _LIFE_S

    def die(self, kind: str, member: str) -> None:
        """Note the first end that was not done."""
        if "death" not in self.fired:
            self.reason = kind, member

    def fire(self, event: str) -> None:
        self.fired[event] = now = clock.time()
        if event == "success":
            self.ends_at = now + _LIFE_ENDED_S

    def count(self, effect: CountMember) -> None:
        self.members.pop(f"hold:{effect.member}", None)
        if effect.state == "done":
            self.done += 1
            if effect.result:
                self.results[effect.place] = effect.result.decode()
        elif not self.leaves_out(effect.state):
            self.members[effect.member] = effect.state

    def leaves_out(self, state: str) -> bool:
        """True for a member that no longer belongs to the batch."""
        return state == _OUT or (state in LEFT_OUT and self.fields.get("if_missing") == "ignore")

    def skip(self) -> Iterator[str]:
        """Skip the members that have not run: a chain has stopped. Yields their names."""
        for member in [name for name, state in self.members.items() if state == "new"]:
            if not member.startswith("hold:"):  # The hold of a program stays.
                self.members[member] = "skipped"
                self.members.pop(f"hold:{member}", None)
                yield member

    def result(self) -> str:
        kind = self.fields.get("kind")
        if kind == "group":
            places = range(int(self.fields["size"]))
            kept = [n for n in places if n in self.results or self.fields.get("if_missing") != "ignore"]
            return f"[{','.join(self.results.get(n, 'null') for n in kept)}]"
        return self.results.get(0, "null") if kind == "chain" else "null"


class MemoryBatches:
    """All batches of one test."""

    def __init__(self) -> None:
        self._batches: dict[str, _Batch] = {}

    def enlist(self, plan: BatchPlan) -> list[PushedJob]:
        """Make a batch and those inside it; returns the jobs to push. Raises BatchError."""
        batch = self._find(plan.id)
        if plan.exists and (batch is None or "success" in batch.fired):
            raise BatchError(f"the batch {plan.id} is unknown or has ended")
        adds = plan.jobs or plan.members or plan.inner or plan.starts
        if (adds and batch and batch.cancelled) or self._is_cancelled(_parent_of(plan.fields)):
            raise BatchCancelledError(f"the batch {plan.id} is cancelled: it takes no more members")
        if batch is None:
            batch = self._batches[plan.id] = _Batch(dict(plan.fields), list(plan.then), clock.time())
            self._add(_parent_of(plan.fields), plan.id)
            if around := self._find(_parent_of(plan.fields)):
                around.inner.append(plan.id)
        batch.touch()
        for member in (*plan.members, *(job.jid for job in plan.jobs)):
            batch.members.setdefault(member, "new")
        jobs = list(plan.jobs)
        self.hold(plan.id, plan.token)
        for inner in plan.inner:
            jobs += self.enlist(inner)
        if plan.closes:
            batch.members.pop(f"hold:{plan.token}")
        return [*jobs, *plan.starts, *self._conclude(plan.id)]

    def leave(self, plan: BatchPlan, jids: Collection[str]) -> list[PushedJob]:
        """Count jobs out that were not pushed, because they are duplicates; returns the jobs to push."""
        jobs = [job for inner in plan.inner for job in self.leave(inner, jids)]
        for job in plan.jobs:
            if job.jid in jids:
                jobs += self._count(CountMember(plan.id, job.jid, _OUT))
        return jobs

    def withdraw(self, plan: BatchPlan) -> None:
        """Undo ``enlist``: none of the jobs was pushed."""
        members = [*(job.jid for job in plan.jobs), *plan.members]
        if plan.exists and (batch := self._batches.get(plan.id)):
            for member in members:
                batch.members.pop(member, None)
                self._delete(member)
        elif not plan.exists:
            self._delete(plan.id)

    def cancel(self, batch: str) -> list[PushedJob] | None:
        """Cancel a batch and those inside it; returns the jobs to push, None for one that has succeeded.

        Raises KeyError for an unknown one.
        """
        if (found := self._find(batch)) is None:
            raise KeyError(batch)
        if "success" in found.fired:
            return None
        jobs = [*self._fire(found, "cancel"), *self._conclude(batch)]
        for member, state in list(found.members.items()):
            inner = self._find(member)
            # One that was skipped before has ended; one that is skipped because of this is complete now.
            if inner is not None and (state not in GONE or inner.cancelled):
                jobs += self.cancel(member) or ()
        return jobs

    @property
    def any_cancelled(self) -> bool:
        """True if a batch is cancelled."""
        return any(batch.cancelled for batch in self._batches.values())

    def cancels(self, batch: object) -> bool:
        """True if a job whose field ``batch`` is this one is a member of a cancelled batch."""
        return isinstance(batch, str) and self._is_cancelled(batch)

    def left(self, batch: str) -> int:
        """The members of a batch that have not ended."""
        return self._batches[batch].left

    def _is_cancelled(self, batch: str) -> bool:
        found = self._find(batch)
        return found is not None and found.cancelled

    def outcome(self, batch: str) -> Any:
        """What a batch returned. Raises JobFailedError if it is dead, ResultTimeout if it has not ended."""
        status = self.status(batch)
        if status and status.cancel_at is not None:
            raise JobFailedError(batch, "cancelled", kind=status.kind)
        if status and status.death_at is not None and status.success_at is None:
            raise JobFailedError(status.reason_jid, status.reason, kind=status.kind, whole=batch)
        if status is None or status.success_at is None:
            kind = "batch" if status is None else status.kind
            raise ResultTimeout(f"the {kind} {batch} has not ended")
        return json.loads(self.result(batch) or "null")

    def hold(self, batch: str, token: str) -> None:
        """Keep the callbacks of a batch back."""
        self._add(batch, f"hold:{token}")

    def apply(self, effects: Iterable[Effect]) -> list[PushedJob]:
        """Apply the effects of a job's end; returns the jobs to push."""
        jobs: list[PushedJob] = []
        for effect in effects:
            if isinstance(effect, CountMember):
                jobs += self._count(effect)
            elif isinstance(effect, Push):
                jobs.append(_pushed(effect.queue, effect.payload.decode()))
        return jobs

    def status(self, batch: str) -> BatchStatus | None:
        """As the status of a batch in Redis."""
        found = self._find(batch)
        if found is None:
            return None
        numbers = {state: found.number(state) for state in ("failed", "dead", *GONE)}
        ended = sum(numbers.values()) - numbers["failed"]
        pending = len(found.members) - found.holds - ended
        reason, reason_jid = found.reason
        return BatchStatus(
            id=batch,
            description=found.fields.get("description", ""),
            kind=found.fields.get("kind", "batch"),
            open=found.holds > 0,
            total=found.done + pending + ended,
            pending=pending,
            done=found.done,
            **numbers,
            created_at=found.created_at,
            parent=_parent_of(found.fields),
            complete_at=found.fired.get("complete"),
            success_at=found.fired.get("success"),
            death_at=found.fired.get("death"),
            cancel_at=found.fired.get("cancel"),
            reason=reason,
            reason_jid=reason_jid,
            tags=tags_in(found.fields.get("tags", "")),
            inner_total=len(found.inner),
            inner=tuple(self._statuses(found.inner)),
        )

    def _statuses(self, batches: Iterable[str]) -> Iterator[BatchStatus]:
        """Each without those inside it, as in Redis."""
        for status in filter(None, map(self.status, islice(batches, MOST_INNER))):
            yield replace(status, inner=())

    def result(self, batch: str) -> str | None:
        """The result as JSON; None for an unknown batch."""
        found = self._find(batch)
        return None if found is None else found.result()

    def _find(self, batch: str) -> _Batch | None:
        found = self._batches.get(batch)
        return found if found and clock.time() < found.ends_at else None

    def _add(self, batch: str, member: str) -> None:
        if found := self._find(batch):
            found.touch()
            found.members.setdefault(member, "new")

    def _count(self, effect: CountMember) -> Iterator[PushedJob]:
        batch = self._find(effect.batch)
        if batch is None or batch.members.pop(effect.member, None) is None:
            return
        batch.touch()
        if effect.state == "replaced":
            # The next steps of a chain wait for it.
            out = "deleted" if batch.fields.get("kind") == "chain" else _OUT
            effect = replace(effect, state=out)
        batch.count(effect)
        if effect.state not in ("done", "failed") and not batch.leaves_out(effect.state):
            yield from self._mourn(effect.batch, effect.member, effect.state)
            if batch.fields.get("kind") == "chain":
                if effect.state != "dead" or self._is_dead_for_good(effect.member):
                    self._skip(effect.batch)
                elif batch.number("new"):
                    yield from self._tell(effect.batch, "dead")
                    return
        yield from self._conclude(effect.batch)

    def _is_dead_for_good(self, name: str) -> bool:
        inner = self._find(name)
        return inner is not None and not inner.number("new") and any(map(inner.number, GONE))

    def _skip(self, name: str) -> None:
        if batch := self._batches.get(name):
            for member in batch.skip():
                self._skip(member)

    def _delete(self, name: str) -> None:
        if batch := self._batches.pop(name, None):
            for member in batch.members:
                self._delete(member)

    def _conclude(self, name: str) -> Iterator[PushedJob]:
        batch = self._batches[name]
        if batch.cancelled:
            if not batch.left:
                yield from self._fire(batch, "complete")
                yield from self._tell(name, "cancelled")
            return
        if batch.number("new"):
            return
        yield from self._fire(batch, "complete")
        is_dead = any(map(batch.number, ("dead", *GONE)))
        state = "dead" if is_dead else "failed" if batch.number("failed") else "done"
        if state == "done":
            yield from self._fire(batch, "success", batch.then)
        yield from self._tell(name, state)

    def _tell(self, name: str, state: str) -> Iterator[PushedJob]:
        """Count a batch in the one around it."""
        batch = self._batches[name]
        place, _, parent = batch.fields.get("parent", "").partition(" ")
        around = self._find(parent)
        if state == "cancelled" and around and around.members.get(name) in GONE:
            # It was skipped there, or counted before.
            return
        if parent:
            result = batch.result().encode() if place and state == "done" else b""
            yield from self._count(CountMember(parent, name, state, int(place or -1), result))

    def _mourn(self, name: str, member: str, kind: str) -> Iterator[PushedJob]:
        while (batch := self._find(name)) and not batch.cancelled:
            batch.die(kind, member)
            yield from self._fire(batch, "death")
            name = _parent_of(batch.fields)

    def _fire(self, batch: _Batch, event: str, more: Iterable[str] = ()) -> Iterator[PushedJob]:
        if event in batch.fired:
            return
        batch.fire(event)
        callback = batch.fields.get(f"on_{event}")
        for ready in (*([callback] if callback else ()), *more):
            queue, payload = filled(ready, batch.result())
            yield _pushed(queue, _due(payload))


def _parent_of(fields: Mapping[str, str]) -> str:
    """The id of the batch around it; empty if there is none."""
    return fields.get("parent", "").partition(" ")[2]


def _due(payload: str) -> str:
    job = envelope.decode(payload.encode())
    return envelope.splice(payload.encode(), due(job, clock.time())).decode()


def _pushed(queue: str, payload: str) -> PushedJob:
    raw = payload.encode()
    return PushedJob(queue, raw, envelope.decode(raw)["jid"])
