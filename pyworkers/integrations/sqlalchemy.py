"""SQLAlchemy 2: jobs that are enqueued when the transaction commits, and dropped when it does not.

Used in programs that enqueue. A job is pushed after the commit, so that it finds what was written.
If Redis is unreachable then, ``commit`` raises the error, although the data is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeAlias

from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.util.concurrency import await_only, in_greenlet

from pyworkers import BadArgumentError, DuplicateJobError, Job, PyworkersError, QueueFullError
from pyworkers.job import Clients
from pyworkers.plugins.deferral import deferred
from pyworkers.protocol.draft import PushedJob

P = ParamSpec("P")

# The attribute of a session or connection.
_WAITING = "_pyworkers_waiting"

AnySession: TypeAlias = (
    "Session | AsyncSession | Connection | AsyncConnection | scoped_session[Any] | async_scoped_session[Any]"
)


def enqueue_after_commit(session: AnySession, job: Job[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str:
    """Enqueue the job once the outermost transaction of ``session`` is committed; return its jid now.

    It is dropped if the transaction is rolled back, if the commit fails, or if the savepoint in which this
    was called is rolled back. The arguments are checked now. Options: ``job.options(…)``. Raises TypeError
    and BadArgumentError, also for a connection that is in no transaction; ``commit`` raises the errors of
    Redis, QueueFullError and DuplicateJobError.

    A session that is bound to a connection in a transaction leaves its jobs to that transaction.
    """
    with deferred() as jobs:
        jid = job.enqueue(*args, **kwargs)
    target = _sync(session)
    _jobs_of(target).add(target, job.clients, jobs)
    return jid


def _sync(session: AnySession) -> Session | Connection:
    if isinstance(session, scoped_session | async_scoped_session):
        return _sync(session())
    if isinstance(session, AsyncSession):
        return session.sync_session
    if not isinstance(session, AsyncConnection):
        return session
    if session.sync_connection is None:
        raise BadArgumentError("the AsyncConnection is not started", hint="async with engine.begin()")
    return session.sync_connection


def _push(clients: Clients, jobs: list[PushedJob]) -> None:
    if in_greenlet():
        await_only(clients.async_client.push(jobs))
    else:
        clients.client.push(jobs)


def _push_all(waiting: Iterable[_Deferred]) -> None:
    """Push the jobs of all calls. Raises the first refusal at the end: it must not cost the other jobs."""
    refusals: list[PyworkersError] = []
    for each in waiting:
        try:
            _push(each.clients, each.jobs)
        except (DuplicateJobError, QueueFullError) as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


@dataclass(frozen=True, eq=False)
class _Deferred:
    """The jobs of one call, and where it was made."""

    clients: Clients
    jobs: list[PushedJob]
    place: Any
    """Of a session: the transaction or savepoint. Of a connection: the number of the savepoint, or 0."""
    root: object = None
    """Of a connection: the transaction, which may end without an event if the connection is lost."""


class _OfSession:
    """The jobs that wait for the commit of a session."""

    def __init__(self, session: Session) -> None:
        self._waiting: list[_Deferred] = []
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_transaction_end", self._ended)

    def add(self, session: Any, clients: Clients, jobs: list[PushedJob]) -> None:
        # Without a transaction there is nothing that a rollback could end: begin it, as a statement would.
        place = session.get_nested_transaction() or session.get_transaction() or session.begin()
        self._waiting.append(_Deferred(clients, jobs, place))

    def _committed(self, session: Session) -> None:
        """A savepoint passes its jobs on to what is around it; the outermost transaction pushes them.

        The outermost transaction of a session may be a part of a connection's transaction.
        """
        if (savepoint := session.get_nested_transaction()) is None:
            waiting, self._waiting = self._waiting, []
            if waiting and (around := _connection_around(session)) is not None:
                _jobs_of(around).take_over(around, waiting)
            else:
                _push_all(waiting)
            return
        self._waiting = [
            replace(each, place=savepoint.parent) if each.place is savepoint else each
            for each in self._waiting
        ]

    def _ended(self, _session: Session, transaction: object) -> None:
        """Drop the jobs that are left at the end of their transaction: it was rolled back."""
        self._waiting = [each for each in self._waiting if each.place is not transaction]


def _connection_around(session: Session) -> Connection | None:
    """The connection whose transaction goes on after the commit of this session; None for most."""
    transaction = session.get_transaction()
    # A mapping of connections and engines; SQLAlchemy has no public name for the connections of a session.
    used = getattr(transaction, "_connections", {})
    found = (one for one in (session.bind, *used) if isinstance(one, Connection))
    return next((one for one in found if one.in_transaction()), None)


class _OfConnection:
    """The jobs that wait for the commit of a connection."""

    def __init__(self, connection: Any) -> None:
        self._waiting: list[_Deferred] = []
        event.listen(connection, "release_savepoint", self._released)
        event.listen(connection, "rollback_savepoint", self._undone)
        event.listen(connection, "rollback", self._rolled_back)
        event.listen(connection, "rollback_twophase", self._rolled_back)
        # SQLAlchemy has an event before a commit, and none after it.
        connection._commit_impl = self._commit(connection, connection._commit_impl)
        connection._commit_twophase_impl = self._commit(connection, connection._commit_twophase_impl)

    def add(self, connection: Any, clients: Clients, jobs: list[PushedJob]) -> None:
        if not connection.in_transaction():
            raise BadArgumentError(
                "the connection is not in a transaction", hint="with connection.begin(): …"
            )
        self.take_over(connection, [_Deferred(clients, jobs, None)])

    def take_over(self, connection: Any, waiting: Iterable[_Deferred]) -> None:
        """Keep jobs until the commit of the transaction that is open."""
        savepoint, root = connection.get_nested_transaction(), connection.get_transaction()
        place = 0 if savepoint is None else _number(savepoint._savepoint)
        self._waiting += [replace(each, place=place, root=root) for each in waiting]

    def _commit(self, connection: Connection, commit: Callable[..., None]) -> Callable[..., None]:
        def commit_and_push(*about: Any) -> None:
            root = connection.get_transaction()
            waiting, self._waiting = self._waiting, []
            commit(*about)
            _push_all(each for each in waiting if each.root is root)

        return commit_and_push

    # SQLAlchemy numbers the savepoints of a connection: while one is open, the higher numbers are inside it.

    def _released(self, _connection: Connection, name: str, _context: object) -> None:
        around = _number(name) - 1
        self._waiting = [replace(each, place=min(each.place, around)) for each in self._waiting]

    def _undone(self, _connection: Connection, name: str, _context: object) -> None:
        self._waiting = [each for each in self._waiting if each.place < _number(name)]

    def _rolled_back(self, _connection: Connection, *_about: object) -> None:
        self._waiting.clear()


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])


def _jobs_of(place: Any) -> Any:
    """The jobs that wait for a session or connection: on it, so that they are freed with it."""
    waiting = vars(place).get(_WAITING)
    if waiting is None:
        waiting = _OfConnection(place) if isinstance(place, Connection) else _OfSession(place)
        setattr(place, _WAITING, waiting)
    return waiting
