"""BatchSet: the batches, chains and groups."""

from __future__ import annotations

from collections.abc import Iterator

from pyworkers.api.target import Where, admin_of
from pyworkers.protocol.flow.plans import BatchStatus
from pyworkers.store.flow import batches, batchviews
from pyworkers.store.flow.batchviews import (
    BatchCallback,
    BatchPage,
    BatchView,
    Member,
    MemberPage,
    read_batch,
    read_batch_page,
    read_members,
)

__all__ = [
    "Batch",
    "BatchCallback",
    "BatchPage",
    "BatchSet",
    "BatchView",
    "Member",
    "MemberPage",
    "read_batch",
    "read_batch_page",
    "read_members",
]
_SHOWN = 100


class Batch:
    """A batch, as it was read."""

    def __init__(self, status: BatchStatus, all_batches: BatchSet) -> None:
        self.status = status
        self._set = all_batches

    def __repr__(self) -> str:
        return f"Batch({self.status.id!r})"

    @property
    def id(self) -> str:
        """The id of the batch."""
        return self.status.id

    def members(self, state: str, most: int = _SHOWN) -> list[str]:
        """Ids of at most ``most`` members: ``waiting`` (not run yet), ``failed`` or ``dead`` ones."""
        return self._set.members(self.id, state, most)

    def delete(self) -> bool:
        """Delete the batch and those inside it, not their jobs; False if it is gone. No callback fires."""
        return self._set.delete(self.id)


class BatchSet:
    """All batches, the newest first. All methods raise RedisUnavailableError and StoreError."""

    def __init__(self, where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        self._admin = admin_of(where, namespace)

    def __iter__(self) -> Iterator[Batch]:
        for status in self._admin.run(batchviews.known(self._admin.keys)):
            yield Batch(status, self)

    def find(self, batch: str) -> Batch | None:
        """The batch with this id; None for an unknown one."""
        status = self._admin.run(batchviews.status(self._admin.keys, batch))
        return None if status is None else Batch(status, self)

    def view(self, batch: str) -> BatchView | None:
        """The batch with its callbacks; None for an unknown one."""
        return self._admin.run(read_batch(self._admin.keys, batch))

    def members(self, batch: str, state: str, most: int = _SHOWN) -> list[str]:
        """Ids of at most ``most`` members of a batch: ``waiting``, ``failed`` or ``dead`` ones."""
        part = "members" if state == "waiting" else state
        return self._admin.run(batchviews.members(self._admin.keys, batch, part, most))

    def delete(self, batch: str) -> bool:
        """Delete a batch; False for an unknown one."""
        return self._admin.run(batches.delete(self._admin.keys, batch))
