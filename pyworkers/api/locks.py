"""LockSet: the locks of unique jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyworkers.api.actions import Action
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.parameters import Parameter
from pyworkers.api.schemas import COUNT, array, record
from pyworkers.api.target import Admin, AtRedis
from pyworkers.protocol.flow.unique import parts_of
from pyworkers.store.flow import locks
from pyworkers.store.flow.locks import LockPage, Locks, StoredLock, read_lock_page

__all__ = ["Lock", "LockPage", "LockSet", "StoredLock", "read_lock_page"]


class Lock:
    """The lock of a unique job, as it was read: while it is held, the same job is a duplicate."""

    def __init__(self, stored: StoredLock, admin: Admin) -> None:
        self._stored = stored
        self._admin = admin
        self.job_class, self.queue, self.digest = parts_of(stored.key)
        """Names of more than 64 characters are shortened; both are empty for a foreign key."""

    def __repr__(self) -> str:
        return f"Lock({self.key!r})"

    @property
    def key(self) -> str:
        """The job's ``unique_key``: class, queue and a digest of the arguments."""
        return self._stored.key

    @property
    def jid(self) -> str:
        """The id of the job that holds the lock."""
        return self._stored.jid

    @property
    def ttl_s(self) -> float | None:
        """The seconds until the lock expires; None if it never does: another program wrote it."""
        return self._stored.ttl_s

    def release(self) -> bool:
        """Release the lock, so that the same job can be enqueued; False if its job no longer holds it."""
        return self._admin.run(locks.release(self._admin.keys, self._stored))

    def as_dict(self) -> dict[str, Any]:
        """The lock for JSON."""
        return LOCK.as_dict(self)

    def expires(self, now: float) -> float | None:
        """When the lock expires, in epoch seconds; None if it never does."""
        return None if self.ttl_s is None else now + self.ttl_s


LOCK: Table[Lock] = Table(
    "Lock",
    Column("key"),
    Column("class", value=lambda lock, _now: lock.job_class),
    Column("what", title="Class", value=lambda lock, _now: lock.job_class or lock.key, only_shown=True,
           empty="(empty name)", cut=2),
    Column("queue", title="Queue", place="queues", cut=3),
    Column("expires", Kind.MOMENT, "Expires", value=Lock.expires, only_shown=True, empty="never"),
    Column("jid", title="JID", place="jobs", cut=4),
    Column("digest", Kind.CODE, "Digest", cut=1),
    Column("ttl", Kind.SECONDS, value=lambda lock, _now: lock.ttl_s, nullable=True,
           about="The seconds until it expires; null if it never does."),
)  # fmt: skip


LOCKS = record("Locks", {"cursor": COUNT, "scanned": COUNT, "locks": array(LOCK.schema)})


class LockSet(AtRedis):
    """The locks of all unique jobs.

    All methods raise RedisUnavailableError and StoreError.
    """

    def __iter__(self) -> Iterator[Lock]:
        """The locks in no order; one may come twice. Scans the names of all keys, a thousand at a time."""
        return (Lock(stored, self._admin) for stored in self._admin.each(Locks(self._admin.keys)))

    def find(self, name: str) -> list[Lock]:
        """The locks with this key, digest or jid. A key is read at once; else all locks are read."""
        if held := self.held(name):
            return [held]
        return list({lock.key: lock for lock in self if name in (lock.digest, lock.jid)}.values())

    def held(self, key: str) -> Lock | None:
        """The lock with this key, read at once; None if it is not held."""
        stored = self._admin.run(locks.read(self._admin.keys, key))
        return None if stored is None else Lock(stored, self._admin)


def _release(admin: Admin, key: str, jid: str = "") -> bool:
    """Release a lock; with ``jid``, if that job still holds it."""
    lock = LockSet(admin).held(key)
    return lock is not None and jid in ("", lock.jid) and lock.release()


RELEASE: Action[Lock] = Action(
    "lock.release",
    "Release a lock.",
    [
        Parameter("key", "Its key.", required=True),
        Parameter("jid", "The id of the job that must hold it; without it, any job."),
    ],
    _release,
    done="{key} is released from {jid}",
    unchanged="{key} is not held, or another job holds it",
    missing="lock",
    target="{key} {jid}",
    several="released",
    command="""Release locks, so that the same jobs can be enqueued again; the jobs themselves stay.

    KEY is a digest, or the unique_key of the job. The exit code is 1 if one of them is not held.

    \b
    Example: pyworkers locks release 49a64717d5d4cb19952e6eac2946415c
    """,
)
ACTIONS = (RELEASE,)
