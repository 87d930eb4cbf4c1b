"""BatchSet: the batches, chains and groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyworkers.api.actions import Action, Confirmation
from pyworkers.api.columns import Column, Kind, Table, Word
from pyworkers.api.parameters import Parameter
from pyworkers.api.schemas import array, more
from pyworkers.api.target import Admin, AtRedis
from pyworkers.protocol.flow.plans import GONE, BatchStatus, CancelledBatch
from pyworkers.store.flow import batches, batchviews
from pyworkers.store.flow.batchgraph import BatchNode, JobNode, read_graph
from pyworkers.store.flow.batchviews import (
    STATES,
    BatchCallback,
    BatchPage,
    BatchView,
    Member,
    MemberPage,
    read_batch,
    read_batch_page,
    read_members,
)
from pyworkers.store.flow.cancelling import cancel_batch
from pyworkers.text import counted

__all__ = [
    "STATES",
    "Batch",
    "BatchCallback",
    "BatchEntry",
    "BatchNode",
    "BatchPage",
    "BatchSet",
    "BatchView",
    "CancelledBatch",
    "JobNode",
    "Member",
    "MemberPage",
    "read_batch",
    "read_batch_page",
    "read_graph",
    "read_members",
]
_SHOWN = 100
_TONES = {"cancelled": "warn", "dead": "bad", "lost": "bad", "succeeded": "good", "failing": "warn"}
_KINDS: Sequence[Column[BatchStatus]] = [Column(kind, Kind.COUNT) for kind in (*GONE, "lost")]


def _gone(batch: BatchStatus, _now: float) -> str:
    return ", ".join(f"{number:,} {kind}" for kind, number in batch.kinds if number)


def _lost(batch: BatchStatus, _now: float) -> Sequence[Word]:
    text = f"{batch.lost:,}: Redis has no data of them, and the batch will not end by itself"
    return [Word(text, "bad")] if batch.lost else []


INNER: Table[BatchStatus] = Table(
    "InnerBatch",
    Column("id", title="ID", place="batches"),
    Column("kind", title="Kind"),
    Column("description", title="Description"),
    Column("state", title="State", tone=_TONES.get),
    Column("share", Kind.SHARE, "Done", value=lambda batch, _now: (batch.done, batch.total)),
    Column("total", Kind.COUNT),
    Column("pending", Kind.COUNT),
    Column("done", Kind.COUNT),
    Column("failed", Kind.COUNT, "Failed"),
    Column("dead", Kind.COUNT, "Dead"),
    Column("gone", Kind.COUNT, "Gone"),
    Column("created_at", Kind.MOMENT, "Created"),
    Column("success_at", Kind.MOMENT, "Succeeded", nullable=True),
)  # fmt: skip
BATCH: Table[BatchStatus] = Table(
    "Batch",
    Column("id", title="ID", place="batches"),
    Column("description", title="Description", cut=1),
    Column("kind", title="Kind"),
    Column("tags", Kind.TEXTS, "Tags"),
    Column("state", title="State", tone=_TONES.get, live=True),
    Column("share", Kind.SHARE, "Done", value=lambda batch, _now: (batch.done, batch.total), live=True,
           about="Members that are done"),
    Column("total", Kind.COUNT, "Total", about="The members."),
    Column("pending", Kind.COUNT, "Pending", about="Those that have not ended."),
    Column("waiting", Kind.COUNT, "Waiting", value=lambda batch, _now: batch.pending - batch.failed,
           live=True, only_shown=True),
    Column("done", Kind.COUNT, "Done"),
    Column("failed", Kind.COUNT, "Failed", about="Those that wait for a retry.", live=True),
    Column("dead", Kind.COUNT, "Dead", live=True),
    Column("gone", Kind.COUNT, "Gone", only_shown=True, live=True),
    Column("gone_by_kind", title="Gone", value=_gone, only_shown=True),
    Column("forgotten", Kind.WORDS, "Lost", value=_lost),
    *_KINDS,
    Column("created_at", Kind.MOMENT, "Created"),
    Column("complete_at", Kind.MOMENT, "Complete", nullable=True),
    Column("success_at", Kind.MOMENT, "Succeeded", nullable=True),
    Column("death_at", Kind.MOMENT, "First death", nullable=True),
    Column("cancel_at", Kind.MOMENT, "Cancelled", nullable=True),
    Column("reason", title="Reason"),
    Column("reason_jid", title="Reason JID", place="jobs"),
    Column("parent", title="Inside of", place="batches"),
    Column("open", Kind.FLAG),
    Column("inner_total", Kind.COUNT, "Batches inside", about="Batches, chains and groups inside it."),
    Column("inner", Kind.RECORDS, table=INNER),
)  # fmt: skip
CALLBACK: Table[BatchCallback] = Table(
    "Callback",
    Column("event", title="Event"),
    Column("class", title="Class", value=lambda callback, _now: callback.job_class),
    Column("queue", title="Queue", place="queues"),
    Column("jid", title="JID", place="jobs"),
    Column("fired_at", Kind.MOMENT, "Enqueued", nullable=True, empty="not yet"),
)
MEMBER: Table[Member] = Table(
    "Member",
    Column("id", title="Member"),
    Column("kind", title="Kind", value=lambda member, _now: "batch" if member.is_batch else "job",
           only_shown=True),
    Column("is_batch", Kind.FLAG),
)  # fmt: skip
BATCH_VIEW = more(BATCH.schema, "BatchView", {"callbacks": array(CALLBACK.schema)})
MEMBERS: Table[MemberPage] = Table(
    "Members", Column("cursor", Kind.COUNT), Column("members", Kind.RECORDS, table=MEMBER)
)


class BatchEntry:
    """A batch of a BatchSet, as it was read."""

    def __init__(self, status: BatchStatus, all_batches: BatchSet) -> None:
        self.status = status
        self._set = all_batches

    def __repr__(self) -> str:
        return f"BatchEntry({self.status.id!r})"

    @property
    def id(self) -> str:
        """The id of the batch."""
        return self.status.id

    def members(self, state: str, most: int = _SHOWN) -> list[str]:
        """Ids of at most ``most`` members: ``waiting`` (not run yet), ``failed`` or ``dead`` ones."""
        return self._set.members(self.id, state, most)

    def cancel(self) -> CancelledBatch | None:
        """Cancel the batch and those inside it, with their members; None if it is gone.

        Reads all waiting jobs.
        """
        return self._set.cancel(self.id)

    def delete(self) -> bool:
        """Delete the batch and those inside it, not their jobs; False if it is gone. No callback fires."""
        return self._set.delete(self.id)


Batch = BatchEntry
"""Its former name."""


class BatchSet(AtRedis):
    """All batches, the newest first. All methods raise RedisUnavailableError and StoreError."""

    def __iter__(self) -> Iterator[BatchEntry]:
        for status in self._admin.run(batchviews.known(self._admin.keys)):
            yield BatchEntry(status, self)

    def find(self, batch: str) -> BatchEntry | None:
        """The batch with this id; None for an unknown one."""
        status = self._admin.run(batchviews.status(self._admin.keys, batch))
        return None if status is None else BatchEntry(status, self)

    def view(self, batch: str) -> BatchView | None:
        """The batch with its callbacks; None for an unknown one."""
        return self._admin.run(read_batch(self._admin.keys, batch))

    def members(self, batch: str, state: str, most: int = _SHOWN) -> list[str]:
        """Ids of at most ``most`` members of a batch: ``waiting``, ``failed`` or ``dead`` ones."""
        part = "members" if state == "waiting" else state
        return self._admin.run(batchviews.members(self._admin.keys, batch, part, most))

    def cancel(self, batch: str) -> CancelledBatch | None:
        """Cancel a batch, as ``worker.batch(…).cancel()``; None for an unknown one."""
        return self._admin.run(cancel_batch(self._admin.keys, batch))

    def delete(self, batch: str) -> bool:
        """Delete a batch; False for an unknown one."""
        return self._admin.run(batches.delete(self._admin.keys, batch))


def _cancel(admin: Admin, id: str) -> str:
    found = BatchSet(admin).cancel(id)
    return "unknown" if found is None else result_of_cancel(found)


def result_of_cancel(found: CancelledBatch) -> str:
    """What the audit says about a batch that was cancelled."""
    return "ended" if found.ended else f"{counted(found.removed, 'job')} removed, {found.left:,} left"


def _ask_to_cancel(admin: Admin, id: str) -> Confirmation:
    batch = BatchSet(admin).find(id)
    pending = batch.status.pending if batch else 0
    text = (
        f"Members that have not ended: {pending:,}. Those that wait are removed, running ones are asked to "
        "end. The callbacks of success and death do not run."
    )
    return Confirmation(f"Cancel the batch {id} now?", text, "Cancel the batch")


_ID = Parameter("id", "The id of the batch.", required=True)
CANCEL: Action[BatchView] = Action(
    "batch.cancel",
    "Cancel the batch and those inside it: members that wait are removed, running ones are asked to end.",
    [_ID],
    _cancel,
    done="The batch {id} is cancelled: {result}",
    unchanged={
        "unknown": "The batch {id} is unknown",
        "ended": "The batch {id} has succeeded: nothing is cancelled",
    },
    nothing=("unknown", "ended"),
    missing="batch",
    label="Cancel the batch",
    dangerous=True,
    asks=_ask_to_cancel,
    offered=lambda view: (
        view.status.success_at is None and (view.status.cancel_at is None or view.status.pending > 0)
    ),
)
DELETE: Action[BatchView] = Action(
    "batch.delete",
    "Delete the batch and those inside it, not their jobs.",
    [_ID],
    lambda admin, **given: BatchSet(admin).delete(given["id"]),
    done="The batch {id} is deleted",
    unchanged="The batch {id} is unknown",
    missing="batch",
    label="Delete the batch",
    dangerous=True,
    several="deleted",
    command="""Delete batches and those inside them, not their jobs; no callback fires.

    The exit code is 1 if one of them does not exist.

    \b
    Example: pyworkers batches delete b4a577edbccf1d805744efa9
    """,
)
ACTIONS = (CANCEL, DELETE)
