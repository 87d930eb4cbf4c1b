"""``enqueue_after_commit`` on real databases: which jobs are pushed, and when."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pyworkers import BadArgumentError, QueueFullError, Worker
from pyworkers.integrations.sqlalchemy import enqueue_after_commit
from pyworkers.testing import Fake, fake
from tests.helpers.processes import close_garbage

worker = Worker()


@worker.job(queue="mail")
def welcome(user_id: int, name: str = "") -> None: ...


@pytest.fixture
def queue() -> Iterator[Fake]:
    with fake() as queue:
        yield queue


def with_savepoints(engine: Engine) -> None:
    """Leave BEGIN to SQLAlchemy: otherwise sqlite3 begins before the first write alone."""

    @event.listens_for(engine, "connect")
    def no_begin(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'db'}")
    with_savepoints(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE users (id INTEGER PRIMARY KEY)"))
        connection.execute(
            text("CREATE TABLE notes (user_id INTEGER REFERENCES users DEFERRABLE INITIALLY DEFERRED)")
        )
    yield engine
    engine.dispose()


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'db'}")
    with_savepoints(engine.sync_engine)
    yield engine
    await engine.dispose()


def users(queue: Fake) -> list[int]:
    return [job.args[0] for job in queue.jobs]


# --- sessions ---------------------------------------------------------------------------------------------


def test_a_job_is_pushed_after_the_commit_with_the_jid_that_was_returned(engine: Engine, queue: Fake) -> None:
    seen: list[int] = []
    with Session(engine) as session:
        event.listen(session, "before_commit", lambda _: seen.append(len(queue.jobs)))
        session.execute(text("INSERT INTO users VALUES (7)"))
        jid = enqueue_after_commit(session, welcome, 7, name="ann")
        assert queue.jobs == []
        session.commit()
        assert seen == [0]
        [job] = queue.jobs
        assert (job.jid, job.args, job.queue) == (jid, [7, "ann"], "mail")
        session.commit()
    assert len(queue.jobs) == 1


def test_a_rollback_drops_the_job(engine: Engine, queue: Fake) -> None:
    with Session(engine) as session:
        enqueue_after_commit(session, welcome, 1)
        session.rollback()
        session.commit()
        enqueue_after_commit(session, welcome, 2)
    with pytest.raises(ZeroDivisionError), Session(engine) as session, session.begin():
        enqueue_after_commit(session, welcome, 3)
        _ = 1 / 0
    assert queue.jobs == []


def test_a_savepoint_takes_its_jobs_with_it(engine: Engine, queue: Fake) -> None:
    with Session(engine) as session:
        enqueue_after_commit(session, welcome, 1)
        with session.begin_nested():
            enqueue_after_commit(session, welcome, 2)
            inner = session.begin_nested()
            enqueue_after_commit(session, welcome, 3)
            inner.rollback()
            enqueue_after_commit(session, welcome, 4)
        outer = session.begin_nested()
        with session.begin_nested():
            enqueue_after_commit(session, welcome, 5)
        assert queue.jobs == []
        outer.rollback()
        session.commit()
    assert users(queue) == [1, 2, 4]


def test_a_commit_that_fails_drops_the_job(engine: Engine, queue: Fake) -> None:
    with Session(engine) as session:
        session.connection().exec_driver_sql("INSERT INTO notes VALUES (99)")
        enqueue_after_commit(session, welcome, 99)
        with pytest.raises(IntegrityError):
            session.commit()
        session.rollback()
        session.commit()
    assert queue.jobs == []


def test_arguments_are_checked_and_copied_at_the_call(engine: Engine, queue: Fake) -> None:
    wrong: Any = welcome

    @worker.job
    def store(rows: list[int]) -> None: ...

    with Session(engine) as session:
        with pytest.raises(TypeError):
            enqueue_after_commit(session, wrong)
        with pytest.raises(BadArgumentError):
            enqueue_after_commit(session, wrong, {1})
        rows = [1]
        enqueue_after_commit(session, store, rows)
        rows.append(2)
        session.commit()
    assert [job.args for job in queue.jobs] == [[[1]]]


def test_options_go_with_the_job(engine: Engine, queue: Fake) -> None:
    with Session(engine) as session:
        enqueue_after_commit(session, welcome.options(queue="slow", retry=3), 1)
        session.commit()
    [job] = queue.jobs
    assert (job.queue, job.data["retry"]) == ("slow", 3)


def test_a_job_that_is_refused_after_the_commit_does_not_cost_the_others(engine: Engine, queue: Fake) -> None:
    limited = welcome.options(max_waiting=1)
    for begin in (lambda: Session(engine), engine.connect):
        queue.clear()
        with begin() as place, pytest.raises(QueueFullError):
            place.execute(text("SELECT 1"))
            for user_id in (1, 2):
                enqueue_after_commit(place, limited, user_id)
            enqueue_after_commit(place, welcome, 3)
            place.commit()
        assert users(queue) == [1, 3]


def test_a_scoped_session(engine: Engine, queue: Fake) -> None:
    registry = scoped_session(sessionmaker(engine))
    enqueue_after_commit(registry, welcome, 1)
    registry.commit()
    registry.remove()
    assert users(queue) == [1]


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
def test_a_session_is_freed_with_its_jobs(engine: Engine, queue: Fake, is_closed: bool) -> None:
    session = Session(engine)
    session.execute(text("SELECT 1"))
    enqueue_after_commit(session, welcome, 1)
    if is_closed:
        session.close()
    gone = ref(session)
    del session
    close_garbage()
    assert gone() is None
    assert queue.jobs == []


@pytest.mark.parametrize("mode", ["conditional_savepoint", "rollback_only", "create_savepoint"])
@pytest.mark.parametrize("statement", [True, False])
def test_a_session_in_the_transaction_of_a_connection(
    engine: Engine, queue: Fake, mode: Any, statement: bool
) -> None:
    with engine.connect() as connection:
        for ends in (connection.rollback, connection.commit):
            connection.begin()
            with Session(bind=connection, join_transaction_mode=mode) as session:
                if statement:
                    session.execute(text("SELECT 1"))
                enqueue_after_commit(session, welcome, 1)
                session.commit()
            assert queue.jobs == []
            ends()
    assert users(queue) == [1]


def test_a_session_that_commits_for_its_connection(engine: Engine, queue: Fake) -> None:
    with engine.connect() as connection:
        connection.begin()
        with Session(bind=connection, join_transaction_mode="control_fully") as session:
            session.execute(text("SELECT 1"))
            enqueue_after_commit(session, welcome, 1)
            session.commit()
            assert users(queue) == [1]


# --- connections ------------------------------------------------------------------------------------------


def test_a_connection_pushes_after_its_commit(engine: Engine, queue: Fake) -> None:
    with engine.connect() as connection:
        connection.begin()
        enqueue_after_commit(connection, welcome, 1)
        connection.rollback()
        with pytest.raises(BadArgumentError, match="not in a transaction"):
            enqueue_after_commit(connection, welcome, 1)
        connection.begin()
        jid = enqueue_after_commit(connection, welcome, 2)
        assert queue.jobs == []
        connection.commit()
        assert [job.jid for job in queue.jobs] == [jid]
        connection.begin()
        enqueue_after_commit(connection, welcome, 3)
    assert users(queue) == [2]


def test_savepoints_of_a_connection(engine: Engine, queue: Fake) -> None:
    with engine.begin() as connection:
        before = connection.begin_nested()
        enqueue_after_commit(connection, welcome, 1)
        with connection.begin_nested():
            enqueue_after_commit(connection, welcome, 2)
        before.rollback()
        enqueue_after_commit(connection, welcome, 3)
        with connection.begin_nested():
            enqueue_after_commit(connection, welcome, 4)
            inner = connection.begin_nested()
            enqueue_after_commit(connection, welcome, 5)
            inner.rollback()
    assert users(queue) == [3, 4]


@pytest.fixture
def two_phases(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite has no two-phase commit: an ordinary one stands for it."""
    for name, instead in (("begin", "begin"), ("rollback", "rollback"), ("commit", "commit")):
        step = getattr(engine.dialect, f"do_{instead}")
        monkeypatch.setattr(
            engine.dialect,
            f"do_{name}_twophase",
            lambda connection, *_, step=step, **__: step(connection.connection),
            raising=False,
        )
    monkeypatch.setattr(engine.dialect, "do_prepare_twophase", lambda *_: None, raising=False)
    monkeypatch.setattr(engine.dialect, "create_xid", lambda: "x", raising=False)


@pytest.mark.usefixtures("two_phases")
def test_two_phase_transactions(engine: Engine, queue: Fake) -> None:
    with engine.connect() as connection:
        for user_id, prepares, ends in ((1, True, "commit"), (2, False, "commit"), (3, True, "rollback")):
            transaction = connection.begin_twophase()
            enqueue_after_commit(connection, welcome, user_id)
            if prepares:
                transaction.prepare()
            assert user_id not in users(queue)
            getattr(transaction, ends)()
        connection.begin()
        connection.commit()
    with Session(engine, twophase=True) as session:
        session.execute(text("SELECT 1"))
        enqueue_after_commit(session, welcome, 4)
        session.commit()
    assert users(queue) == [1, 2, 4]


def test_a_lost_connection_drops_its_jobs(engine: Engine, queue: Fake) -> None:
    with engine.connect() as connection:
        transaction = connection.begin()
        enqueue_after_commit(connection, welcome, 1)
        connection.invalidate()
        transaction.close()
        connection.begin()
        connection.commit()
    assert queue.jobs == []


def test_a_failing_commit_of_a_connection_drops_the_job(engine: Engine, queue: Fake) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("INSERT INTO notes VALUES (99)")
        enqueue_after_commit(connection, welcome, 99)
        with pytest.raises(IntegrityError):
            connection.commit()
        connection.rollback()
        connection.commit()
    assert queue.jobs == []


# --- event loops ------------------------------------------------------------------------------------------


async def test_an_async_session_pushes_without_blocking(tmp_path: Path, queue: Fake) -> None:
    async with opened(tmp_path) as engine, AsyncSession(engine) as session:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            enqueue_after_commit(session, welcome, 1)
            await session.rollback()
            jid = enqueue_after_commit(session, welcome, 2)
            async with session.begin_nested():
                enqueue_after_commit(session, welcome, 3)
            assert queue.jobs == []
            await session.commit()
    assert users(queue) == [2, 3]
    assert queue.jobs[0].jid == jid


async def test_an_async_connection(tmp_path: Path, queue: Fake) -> None:
    async with opened(tmp_path) as engine:
        async with engine.begin() as connection:
            enqueue_after_commit(connection, welcome, 1)
        with pytest.raises(BadArgumentError, match="not started"):
            enqueue_after_commit(engine.connect(), welcome, 2)
    assert users(queue) == [1]
