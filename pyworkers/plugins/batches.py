"""Batches: jobs that are enqueued together, and the jobs that follow when they have ended.

Used in programs that enqueue, and in jobs. The members are kept in memory until the end of the ``with``, or
until there are ``flush`` of them; then they are sent. The counting is done by effects
(protocol/flow/batch.py), never here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Token
from dataclasses import replace
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Self

from pyworkers.client import Client
from pyworkers.enqueueing import clock
from pyworkers.enqueueing.interception import Gatherer, gathering, in_thread, interceptor, warn_in_loop
from pyworkers.enqueueing.producer import one_job
from pyworkers.errors import BadArgumentError, BatchError, JobFailedError, PyworkersError, ResultTimeout
from pyworkers.protocol import envelope
from pyworkers.protocol.call import RESULT, RESULTS, Call
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow import filling
from pyworkers.protocol.flow.plans import BatchPlan, BatchStatus, CancelledBatch, members, queues_of
from pyworkers.protocol.message import Message
from pyworkers.store.admin import Admin
from pyworkers.store.flow import batchviews, tracking
from pyworkers.store.flow.cancelling import cancel_batch
from pyworkers.store.routes import place_of_jobs
from pyworkers.store.transport.blocking import Wires
from pyworkers.store.wiresteps import run

_ID_BYTES = 12
ANSWERED = {"answer": "1"}
"""The field of a batch whose result may be asked for."""
FAIL, IGNORE = "fail", "ignore"
"""What members that were cancelled or deleted, expired, or are missing mean for their batch."""


def new_id() -> str:
    """The id of a new batch, which looks like a jid."""
    return os.urandom(_ID_BYTES).hex()


class Batch:
    """A batch: its id, its numbers, and its members, which are the jobs enqueued inside its ``with``.

    Made by ``worker.batch``, by ``enqueue`` of chains and groups, and by ``message.batch``.
    """

    def __init__(
        self, client: Client, batch: str, plan: BatchPlan | None = None, queue: str = "", flush: int = 0
    ) -> None:
        self.id = batch
        self._client = client
        self._queue = plan.queue if plan else queue
        """The queue of a member: the batch is in its Redis."""
        self._plan = plan
        self._owner: object = client.owner
        self._outer: Token[Gatherer | None] | None = None
        self._flush = flush
        """The members that are kept at most before they are sent; 0: all, until the end of the ``with``."""
        self._unsent: PyworkersError | None = None
        """Why a portion of members could not be sent."""

    @cached_property
    def _admin(self) -> Admin:
        return Admin(self._client.stores.redis_of(self._queue))

    def __repr__(self) -> str:
        return f"<Batch {self.id}>"

    def status(self) -> BatchStatus:
        """The numbers of the batch. Raises BatchError for an unknown one, and the errors of Redis."""
        warn_in_loop()
        transport = interceptor()
        if transport is None:
            found = self._admin.run(batchviews.status(self._admin.keys, self.id))
        else:
            found = transport.batch_status(self.id)
        if found is None:
            raise BatchError(f"the batch {self.id} is unknown: expired, deleted, or not sent yet")
        return found

    async def astatus(self) -> BatchStatus:
        """As ``status``, in an event loop."""
        return await in_thread(self.status)

    def cancel(self) -> CancelledBatch:
        """Cancel the batch and those inside it: members that wait are removed, running ones are asked to end.

        The callbacks of success and death do not run; ``on_cancel`` runs once, and ``on_complete`` when all
        members have ended. Adding members raises BatchCancelledError from now on. A batch that has succeeded
        does not change: ``ended`` of the answer is True. Reads all waiting jobs; it may be repeated after an
        error. Raises BatchError for an unknown batch, and the errors of Redis.
        """
        warn_in_loop()
        transport = interceptor()
        if transport is None:
            found = self._admin.run(cancel_batch(self._admin.keys, self.id))
        else:
            found = transport.cancel_batch(self.id, self._client.owner)
        if found is None:
            raise BatchError(f"the batch {self.id} is unknown: expired, deleted, or not sent yet")
        return found

    async def acancel(self) -> CancelledBatch:
        """As ``cancel``, in an event loop."""
        return await in_thread(self.cancel)

    def result(self, timeout: float | None = 10.0) -> Any:
        """The result of the last step of a chain, the list of a group's results, or None for a batch.

        Waits at most ``timeout`` seconds, None: without a limit, in one blocking read. Raises JobFailedError
        once a member has ended that is not done, with its id and state, ResultTimeout, BatchError for an
        unknown batch, and the errors of Redis.
        """
        deadline = tracking.deadline_of(timeout)
        status = self.status()
        if (transport := interceptor()) is not None:
            return transport.batch_result(self.id, deadline)
        try:
            if not status.answered:
                waiting = tracking.wait(self._admin.config, self._admin.keys, self.id, deadline)
                run(Wires(self._admin.redis), waiting)
            return self._client.result(self.id)
        except JobFailedError as error:
            if error.jid != self.id:
                raise JobFailedError(error.jid, error.state, kind=status.kind, whole=self.id) from None
            why = (error.state, error.error_class, error.error)
            raise JobFailedError(self.id, *why, kind=status.kind) from None
        except ResultTimeout as error:
            raise ResultTimeout(f"the {status.kind} {self.id} has not ended in the time") from error.__cause__

    async def aresult(self, timeout: float | None = 10.0) -> Any:
        """As ``result``, in an event loop: the wait takes a thread."""
        return await in_thread(partial(self.result, timeout))

    # --- the with -------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._plan is None or self._outer is not None:
            raise BatchError(
                f"the batch {self.id} cannot be opened here",
                hint="a member opens its batch again: with current_message().batch: …",
            )
        if gathering.get() is not None or type(self._client).defer is not Client.defer:
            # It is sent with the batch around it, or at the commit.
            self._flush = 0
        self._outer = gathering.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        plan = self._leave()
        if kind is None and self._unsent is None:
            self._send(plan)
        elif plan.begun:
            self._abandon(plan)
            self._check_sent(kind)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        plan = self._leave()
        if kind is None and self._unsent is None:
            # A batch inside another one only passes its members on.
            await self._client.aside(partial(self._send, plan))
        elif plan.begun:
            await self._client.aside(partial(self._abandon, plan))
            self._check_sent(kind)

    def takes(self, client: Any) -> bool:
        """True for clients of the same Redis while the ``with`` is open."""
        if self._plan is None:
            return False
        mine, other = self._client.config, client.config
        return interceptor() is not None or (mine.url, mine.namespace) == (other.url, other.namespace)

    def gather(self, jobs: list[PushedJob], owner: object) -> Callable[[], None] | None:
        """Keep jobs until the end of the ``with``, or until there are ``flush`` of them."""
        if self._plan is not None:
            first = (job.queue for job in self._plan.jobs[:1])
            # Here, so that it is an error of this call and not of the end of the block.
            place_of_jobs(self._client.stores, self._plan.queue, *first, *(job.queue for job in jobs))
            self._owner = self._owner or owner
            self._plan.add(members(jobs, self.id))
            if 0 < self._flush <= len(self._plan.jobs):
                return self._send_portion
        return None

    def _send_portion(self) -> None:
        """Send the members that are kept, and keep the batch open."""
        plan = self._plan
        if plan is None:
            return
        self._plan = plan.leave_open()
        self._queue = self._plan.queue
        try:
            self._client.enlist(plan, self._owner)
        except PyworkersError as error:
            # Some of them may exist: the end of the block cancels the batch.
            self._flush, self._unsent = 0, error
            raise

    def _check_sent(self, kind: type[BaseException] | None) -> None:
        """Raise BatchError if the body has caught the error of a portion that could not be sent."""
        if kind is None:
            raise BatchError(
                f"the batch {self.id} is cancelled: members of it could not be sent",
                hint="let the error of enqueue end the block",
            ) from self._unsent

    def _abandon(self, plan: BatchPlan) -> None:
        """The body has raised after members were sent: cancel these, and close the batch."""
        # The caller needs the error of the body. If this fails, the sweep cancels the batch after an hour.
        with suppress(PyworkersError):
            self.cancel()
            self._client.enlist(replace(plan, jobs=[], inner=[]), self._owner)

    def gather_later(self, jobs: list[PushedJob], client: Any) -> Callable[[], object] | None:
        """A function that adds the jobs. A batch that exists was sent before: they are sent by themselves."""
        return self._later(client, lambda plan: plan.add(members(jobs, self.id)))

    def adopt(self, plan: BatchPlan, client: Client, owner: object) -> None:
        """Keep a batch of jobs of ``owner``, which becomes a member, until the end of the ``with``."""
        if self._plan is None:
            return
        self._owner = self._owner or owner
        later = self._later(client, lambda own: own.nest(plan))
        if later is None or not client.defer(later):
            self._plan.nest(plan)

    def _later(self, client: Client, change: Callable[[BatchPlan], None]) -> Callable[[], object] | None:
        plan = self._plan
        if plan is None:
            return None
        if not plan.exists:
            return partial(change, plan)

        def send_change() -> None:
            more = BatchPlan(plan.id, plan.token, exists=True, queue=plan.queue)
            change(more)
            client.enlist(more)

        return send_change

    def _leave(self) -> BatchPlan:
        outer, plan = self._outer, self._plan
        if outer is None or plan is None:
            raise BatchError(f"the batch {self.id} is not open")
        gathering.reset(outer)
        self._plan = None
        return plan

    def _send(self, plan: BatchPlan) -> None:
        self._queue = next(queues_of(plan), "")
        plan.name_all()
        send(self._client, plan, self._owner)


def send(client: Client, plan: BatchPlan, owner: object = None) -> None:
    """Enqueue a batch: now, or with the batch whose ``with`` is open."""
    outer = gathering.get()
    if isinstance(outer, Batch) and outer.takes(client):
        outer.adopt(plan, client, owner or client.owner)
    else:
        client.enlist(plan, owner)


def new_batch(
    client: Client,
    description: str,
    missing: str = FAIL,
    flush: int = 0,
    tags: Sequence[str] = (),
    **callbacks: Call | None,
) -> Batch:
    """A batch to be opened with ``with``. Raises BadArgumentError for a callback that is not a call."""
    if not isinstance(flush, int) or flush < 0:
        raise BadArgumentError(f"flush must be 0 or a number of members, not {flush!r}")
    if not isinstance(description, str):
        raise BadArgumentError(f"the description of a batch is a text, not {description!r}")
    batch = new_id()
    fields = {
        "description": description,
        **missing_field(missing),
        **_tags_field(tags),
        **callback_fields(client, batch, callbacks),
    }
    return Batch(client, batch, BatchPlan(batch, new_id(), {**ANSWERED, **fields}), flush=flush)


def _tags_field(tags: Sequence[str]) -> dict[str, str]:
    """The field of the tags of a batch, as JSON. Raises BadArgumentError."""
    if isinstance(tags, str) or not all(isinstance(tag, str) and tag for tag in tags):
        raise BadArgumentError(f"the tags of a batch are a list of texts, not {tags!r}")
    return {"tags": envelope.encode(list(tags))} if tags else {}


def missing_field(missing: object) -> dict[str, str]:
    """The field of a batch that ignores members which are gone. Raises BadArgumentError."""
    if missing not in (FAIL, IGNORE):
        raise BadArgumentError(f'missing must be "{FAIL}" or "{IGNORE}", not {missing!r}')
    return {"if_missing": IGNORE} if missing == IGNORE else {}


def batch_of(message: Message) -> Batch | None:
    """The batch of a running job, which may open it again; None if it is no member.

    A callback that waits for the job does not fire while it runs. The hold of the ``with`` has the jid as its
    name: if the job ends in the middle of the ``with``, its end releases the hold.
    """
    batch = message.data.get("batch")
    if not isinstance(batch, str):
        return None
    return Batch(Client(), batch, BatchPlan(batch, message.jid, exists=True, queue=message.queue))


def callback_fields(client: Client, batch: str, callbacks: dict[str, Call | None]) -> dict[str, str]:
    """The callbacks as fields of the HASH. Raises BadArgumentError."""
    fields: dict[str, str] = {}
    for event, call in callbacks.items():
        if call is None:
            continue
        if not isinstance(call, Call):
            raise BadArgumentError(f"{event} is a call, e.g. finish.call(7), not {call!r}")
        if call.holds(RESULT) or call.holds(RESULTS):
            raise BadArgumentError(
                f"{event}: {call} has no result to take: use a chain, or parallel(…).then(…)"
            )
        for ready in ready_jobs(client, call, batch):
            fields[event] = ready
    return fields


def ready_jobs(client: Client, call: Call, batch: str) -> list[str]:
    """A call as the text that is pushed later, queue and payload; empty if client middleware drops it."""
    _, jobs = one_job(call.draft, call.filled(batch), clock.time(), client.client_links)
    return [filling.ready({**envelope.decode(later(job)), "queue": job.queue}) for job in jobs]


def later(job: PushedJob) -> bytes:
    """The payload of a job that is not pushed yet: the script adds ``enqueued_at``."""
    return envelope.splice(job.payload, {}, remove=("enqueued_at",))
