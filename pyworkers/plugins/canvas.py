"""Canvas: jobs one after the other (chains) or at the same time (groups), with results of jobs before them.

Used in programs that enqueue, and in jobs. Both are batches: all of them are made when the canvas is
enqueued, with the ids of all jobs; then the first jobs are pushed. A step carries the steps after it in its
envelope, and its settlement pushes the next one (protocol/flow/batch.py); the jobs after a group wait in its
batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain as chained
from typing import Any, Literal, TypeAlias

from pyworkers.client import Client
from pyworkers.enqueueing import clock
from pyworkers.enqueueing.producer import one_job
from pyworkers.errors import BadArgumentError, BadMessageError
from pyworkers.plugins.batches import ANSWERED, FAIL, Batch, callback_fields, missing_field, new_id, send
from pyworkers.protocol import envelope
from pyworkers.protocol.call import RESULT, RESULTS, Awaited, Call
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow import filling
from pyworkers.protocol.flow.batch import MOST_JOBS, MOST_STEPS
from pyworkers.protocol.flow.plans import MOST_NAMED, MOST_STEPS_NAMED, BatchPlan, named, queues_of
from pyworkers.store.routes import place_of

# Chains and groups inside each other: the functions that walk through them call themselves for each level.
_MOST_LEVELS = 200

Job: TypeAlias = dict[str, Any]
"""The envelope of a job that is not pushed yet."""


class Before(Enum):
    """What ends before a job: it decides what the job's placeholders may be."""

    NOTHING = "nothing"
    CALL = "a call"
    GROUP = "a group"
    EMPTY = "a group without members"


class _Canvas:
    """Base of both: how they are enqueued."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        on_success: Call | None = None,
        on_complete: Call | None = None,
        on_death: Call | None = None,
        on_cancel: Call | None = None,
    ) -> None:
        for node in nodes:
            if not isinstance(node, Call | _Canvas):
                raise BadArgumentError(
                    f"a step must be a call, chain(…) or parallel(…), not {node!r}",
                    hint="job.call(…) makes a call",
                )
        self.nodes = tuple(nodes)
        self.levels: int = 1 + max((node.levels for node in nodes if isinstance(node, _Canvas)), default=0)
        if self.levels > _MOST_LEVELS:
            raise BadArgumentError(
                f"chains and groups nested deeper than {_MOST_LEVELS} levels",
                hint="a chain takes all its steps at once: chain(*steps)",
            )
        self.callbacks = {
            "on_success": on_success,
            "on_complete": on_complete,
            "on_death": on_death,
            "on_cancel": on_cancel,
        }
        self.fields: Mapping[str, str] = {}

    def then(self, *steps: Node, **callbacks: Call | None) -> Chain:
        """A chain of this and further steps. ``callbacks`` are the callbacks of ``chain``."""
        return Chain((self, *steps), **callbacks)

    def enqueue(self) -> Batch:
        """Enqueue the first jobs, and return the batch.

        Raises BadArgumentError, StoreError and RedisUnavailableError.
        """
        return _Compiler(self._client()).enqueue(self)

    async def aenqueue(self) -> Batch:
        """As ``enqueue``, in an event loop."""
        return await self._client().aside(self.enqueue)

    def _client(self) -> Client:
        callbacks = (call for call in self.callbacks.values() if call is not None)
        call = next(chained(self.calls(), callbacks), None)
        if call is None:
            raise BadArgumentError("a canvas without a call cannot be enqueued: it has no application")
        client: Client = call.clients.client
        return client

    def calls(self) -> Iterator[Call]:
        """All calls, in order."""
        for node in self.nodes:
            if isinstance(node, Call):
                yield node
            else:
                yield from node.calls()


class Chain(_Canvas):
    """Steps that run one after the other; ``RESULT`` in a step is the result of the step before."""

    def __repr__(self) -> str:
        return f"chain({', '.join(map(repr, self.nodes))})"


class Parallel(_Canvas):
    """Jobs that run at the same time; ``RESULTS`` in the job after them is the list of their results."""

    def __init__(self, nodes: Sequence[Node], *, missing: str = FAIL, **callbacks: Call | None) -> None:
        super().__init__(nodes, **callbacks)
        self.fields = missing_field(missing)

    def __repr__(self) -> str:
        return f"parallel({', '.join(map(repr, self.nodes))})"


Node: TypeAlias = Call | _Canvas


def chain(
    *steps: Node,
    on_success: Call | None = None,
    on_complete: Call | None = None,
    on_death: Call | None = None,
    on_cancel: Call | None = None,
) -> Chain:
    """Steps that run one after the other, each once the one before is done: calls, groups and chains.

    The callbacks are the same as of ``worker.batch``. Raises BadArgumentError.
    """
    return Chain(
        steps, on_success=on_success, on_complete=on_complete, on_death=on_death, on_cancel=on_cancel
    )


def parallel(
    *members: Node | Iterable[Node],
    on_success: Call | None = None,
    on_complete: Call | None = None,
    on_death: Call | None = None,
    on_cancel: Call | None = None,
    missing: Literal["fail", "ignore"] = "fail",
) -> Parallel:
    """Jobs that run at the same time: calls, chains and other parallel jobs, or one iterable of them.

    ``parallel(…).then(publish.call(RESULTS))`` runs a job after them. The callbacks and ``missing`` are
    the same as of ``worker.batch``; ``RESULTS`` has no place for members that are left out.

    Raises BadArgumentError.
    """
    nodes: list[Any] = []
    for member in members:
        nodes += (
            [member] if isinstance(member, Call | _Canvas) or not isinstance(member, Iterable) else member
        )
    callbacks = {
        "on_success": on_success,
        "on_complete": on_complete,
        "on_death": on_death,
        "on_cancel": on_cancel,
    }
    return Parallel(nodes, missing=missing, **callbacks)


group = parallel
"""The earlier name of ``parallel``."""


@dataclass
class _Made:
    """A canvas as a batch, and the jobs that it begins with."""

    plan: BatchPlan
    starts: list[Job] = field(default_factory=list)

    def add(self, jobs: Iterable[Job]) -> None:
        """Begin with these, too."""
        self.starts.extend(jobs)


class _Compiler:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._now = clock.time()

    def enqueue(self, canvas: _Canvas) -> Batch:
        made = self._made(canvas, Before.NOTHING)
        made.plan.fields.update(ANSWERED)
        for job in made.starts:
            _check_depth(job)
            text = envelope.encode({**job, "enqueued_at": self._now})
            made.plan.starts.append(PushedJob(job["queue"], text.encode(), job["jid"]))
        queue = next(queues_of(made.plan), "")
        place_of(self._client.stores, made.plan)
        send(self._client, made.plan)
        return Batch(self._client, made.plan.id, queue=queue)

    def _made(self, canvas: _Canvas, before: Before) -> _Made:
        batch = new_id()
        fields = callback_fields(self._client, batch, canvas.callbacks)
        if isinstance(canvas, Chain):
            return self._chain(canvas, BatchPlan(batch, new_id(), {"kind": "chain", **fields}), before)
        size = {"size": str(len(canvas.nodes)), **canvas.fields}
        return self._group(canvas, BatchPlan(batch, new_id(), {"kind": "group", **size, **fields}), before)

    def _group(self, group: _Canvas, plan: BatchPlan, before: Before) -> _Made:
        made, names = _Made(plan), list[str]()
        for place, node in enumerate(group.nodes):
            if isinstance(node, Call):
                jobs = self._jobs(node, plan, before, place)
                made.add(jobs)
                names += [named(job["jid"], job["class"]) for job in jobs]
            else:
                inner = self._made(node, before)
                plan.nest(inner.plan, place)
                made.add(inner.starts)
                names.append(inner.plan.id)
        if len(names) <= MOST_NAMED:
            plan.name(names)
        return made

    def _chain(self, chain: _Canvas, plan: BatchPlan, before: Before) -> _Made:
        """From the last step to the first: each needs what follows it."""
        steps = _steps(chain, before)
        if len(steps) > MOST_STEPS:
            raise BadArgumentError(f"a chain of {len(steps)} steps; the limit is {MOST_STEPS}")
        starts: list[Job] = []
        rest: list[Any] = []
        names: list[str] = []
        for place, (node, before_it) in reversed(list(enumerate(steps))):
            last = 0 if place == len(steps) - 1 else None
            if isinstance(node, Call):
                jobs = self._jobs(node, plan, before_it, last)
                if not jobs:
                    raise BadArgumentError(f"client middleware has dropped {node}, a step of a chain")
                starts = [{**jobs[0], "then": {"v": filling.VERSION, "steps": rest}} if rest else jobs[0]]
                rest = [jobs[0], *rest]
                names.append(named(jobs[0]["jid"], jobs[0]["class"]))
            else:
                inner = self._made(node, before_it)
                plan.nest(inner.plan, last)
                for job in starts:
                    _check_depth(job)
                inner.plan.follow(map(filling.ready, starts))
                if place and len(inner.starts) > MOST_JOBS:
                    raise BadArgumentError(
                        f"a step that begins with {len(inner.starts)} jobs; the limit is {MOST_JOBS}"
                    )
                starts, rest = inner.starts, [inner.starts]
                names.append(inner.plan.id)
        plan.name(names[::-1][:MOST_STEPS_NAMED])
        return _Made(plan, starts)

    def _jobs(self, call: Call, plan: BatchPlan, before: Before, place: int | None) -> list[Job]:
        """The job of a call, as a member that is pushed later; none if client middleware drops it."""
        _check_placeholders(call, before)
        marked = Awaited("RESULT", f" {new_id()}")
        known: Any = [] if before is Before.EMPTY else marked
        args = call.filled(plan.id, {"RESULT": known, "RESULTS": known})
        _, pushed = one_job(call.draft, args, self._now, self._client.client_links)
        jobs = []
        for one in pushed:
            job = envelope.decode(one.payload)
            job.pop("enqueued_at", None)
            if job.get("encrypted") and (call.holds(RESULT) or call.holds(RESULTS)):
                raise BadArgumentError(f"{call}: a result cannot become an argument of an encrypted job")
            job["args"], paths = filling.taken_out(job["args"], marked)
            if paths:
                job[filling.FIELD] = {filling.NAME: paths}
            job["batch"] = plan.id
            if place is not None:
                job["batch_index"] = place
            plan.members.append(one.jid)
            jobs.append(job)
        return jobs


def _check_depth(job: Job) -> None:
    """Raise BadArgumentError if the steps after the job are nested deeper than a server reads."""
    if "then" not in job:
        return
    try:
        envelope.decode(envelope.encode(job).encode())
    except (RecursionError, BadMessageError) as error:
        reason = error.message if isinstance(error, BadMessageError) else "nested too deep"
        raise BadArgumentError(
            f"{job['class']} with the steps after it is {reason}",
            hint="a chain takes all its steps at once: chain(*steps)",
        ) from error


def _steps(chain: _Canvas, before: Before) -> list[tuple[Node, Before]]:
    """The steps of a chain, each with what ends before it; without those that have no job."""
    steps: list[tuple[Node, Before]] = []
    for node in chain.nodes:
        if not isinstance(node, Call) and next(iter(node.calls()), None) is None:
            before = Before.EMPTY
            continue
        steps.append((node, before))
        before = Before.GROUP if _ends_with_group(node) else Before.CALL
    return steps


def _ends_with_group(node: Node) -> bool:
    if isinstance(node, Chain):
        return _ends_with_group(node.nodes[-1])
    return isinstance(node, Parallel)


def _check_placeholders(call: Call, before: Before) -> None:
    if before is Before.NOTHING and (call.holds(RESULT) or call.holds(RESULTS)):
        raise BadArgumentError(f"{call}: no step is before it whose result it could take")
    if before is Before.CALL and call.holds(RESULTS):
        raise BadArgumentError(f"{call}: no parallel(…) is before it", hint="RESULT is the result of one job")
