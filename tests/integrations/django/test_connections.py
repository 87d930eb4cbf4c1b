"""The database connections of a server: around jobs, and around forks."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from tests.helpers.django_project import DjangoProject
from tests.helpers.postgres import connected
from tests.helpers.support import wait_for
from tests.integrations.django.conftest import Project

TASKS = """
from django.db import connection

def backend():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]

# An app that asks the database at its import.
at_import = backend()

@worker.job(mode={mode!r}, processes={processes}, concurrency={concurrency})
{kind} work(name):
    note(name, {call}, at_import)
    {wait}
"""
ASYNC = {"kind": "async def", "call": "await sync_to_async(backend)()"}
PLAIN = {"kind": "def", "call": "backend()"}
AFTER_EACH_JOB: dict[str, Any] = {"CONN_MAX_AGE": 0}
KEPT: dict[str, Any] = {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}


def site_of(
    project: Project,
    postgres: dict[str, Any],
    *,
    mode: str,
    wait: bool = False,
    processes: int = 1,
    concurrency: int = 1,
    **database: Any,
) -> DjangoProject:
    site = project(database=postgres | database)
    kind = ASYNC if mode == "async" else PLAIN
    ending = "wait_for_file(name)" if wait else ""
    code = textwrap.dedent(TASKS).format(
        mode=mode, wait=ending, processes=processes, concurrency=concurrency, **kind
    )
    site.write_tasks("from asgiref.sync import sync_to_async\n" + code)
    return site


def enqueue(site: DjangoProject, *names: str) -> None:
    site.run(
        f"from pyworkers.integrations.django import worker\n"
        f"print(json.dumps(worker.enqueue_bulk('default', 'shop.work', [[n] for n in {names!r}])))"
    )


def backends(postgres: dict[str, str]) -> set[int]:
    """The connections that are open to this database, by the pids of their servers."""
    with connected(postgres["HOST"]) as connection:
        query = "SELECT pid FROM pg_stat_activity WHERE datname = %s"
        return {pid for (pid,) in connection.execute(query, [postgres["NAME"]]).fetchall()}


def end_backends(postgres: dict[str, str]) -> None:
    """Close all connections to this database, as a restart of the database does."""
    with connected(postgres["HOST"]) as connection:
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        connection.execute(query, [postgres["NAME"]])


@pytest.mark.parametrize("mode", ["process", "thread", "async"])
def test_a_connection_is_closed_after_its_job(project: Project, postgres: dict[str, str], mode: str) -> None:
    site = site_of(project, postgres, mode=mode, **AFTER_EACH_JOB)
    site.start()
    enqueue(site, "a", "b")
    notes = site.wait_for_notes(2)
    assert notes[0][2] != notes[1][2]
    wait_for(lambda: not backends(postgres))


def test_in_a_process_the_connection_is_closed_whatever_its_age(
    project: Project, postgres: dict[str, str]
) -> None:
    site = site_of(project, postgres, mode="process", **KEPT)
    site.start()
    enqueue(site, "a", "b")
    notes = site.wait_for_notes(2)
    assert notes[0][2] != notes[1][2]
    wait_for(lambda: not backends(postgres))


@pytest.mark.fault("G1")
@pytest.mark.parametrize("mode", ["thread", "async"])
def test_elsewhere_the_age_counts_and_a_lost_connection_is_replaced(
    project: Project, postgres: dict[str, str], mode: str
) -> None:
    site = site_of(project, postgres, mode=mode, **KEPT)
    site.start()
    enqueue(site, "a", "b")
    first, second = (note[2] for note in site.wait_for_notes(2))
    assert first == second
    end_backends(postgres)
    enqueue(site, "c")
    assert site.wait_for_notes(1, "c")[0][2] != first
    assert not site.events("job.failed")


LEFT = """
from django.db import connection, transaction

@worker.job(mode={mode!r}, processes=1, concurrency=1)
def work(name):
    assert not connection.in_atomic_block
    transaction.atomic().__enter__()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
"""


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_transaction_that_a_job_leaves_open_ends_with_the_job(project: Project, mode: str) -> None:
    site = project(settings='DATABASES["default"]["CONN_MAX_AGE"] = None')
    site.write_tasks(LEFT.format(mode=mode))
    site.start()
    enqueue(site, "a", "b")
    site.wait_for_event("job.done", 2)
    assert not site.events("job.failed")


MIXED = """
from asgiref.sync import sync_to_async
from django.db import connection

def backend():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]

@worker.middleware
{outer} mixed(message, call_next):
    outer = {asked_outside}
    note(message.args[0], "outside", outer)
    outcome = {call_next}
    assert {asked_outside} == outer
    return outcome

@worker.job(mode={mode!r}, processes=1, concurrency=1)
{inner} work(name):
    note(name, "inside", {asked_inside})
"""
DEF = {"kind": "def", "asked": "backend()", "next": "call_next(message)"}
ASYNC_DEF = {
    "kind": "async def",
    "asked": "await sync_to_async(backend)()",
    "next": "await call_next(message)",
}


def mixed(mode: str, outer: dict[str, str], inner: dict[str, str]) -> str:
    """Code with a link of one kind around a job of the other one; both ask the database."""
    return MIXED.format(
        mode=mode,
        outer=outer["kind"],
        asked_outside=outer["asked"],
        call_next=outer["next"],
        inner=inner["kind"],
        asked_inside=inner["asked"],
    )


@pytest.mark.parametrize(("outer", "inner"), [(DEF, ASYNC_DEF), (ASYNC_DEF, DEF)], ids=["def", "async"])
@pytest.mark.parametrize("mode", ["process", "thread", "async"])
def test_connections_are_closed_where_a_link_is_of_the_other_kind(
    project: Project, postgres: dict[str, str], mode: str, outer: dict[str, str], inner: dict[str, str]
) -> None:
    site = project(database=postgres | (KEPT if mode == "process" else AFTER_EACH_JOB))
    site.write_tasks(mixed(mode, outer, inner))
    site.start()
    enqueue(site, "a", "b")
    asked = {(name, where): backend for _, name, where, backend in site.wait_for_notes(4)}
    assert asked["a", "outside"] != asked["b", "outside"]
    assert asked["a", "inside"] != asked["b", "inside"]
    wait_for(lambda: not backends(postgres))
    assert not site.events("job.failed")


@pytest.mark.fault("G1")
@pytest.mark.parametrize(("outer", "inner"), [(DEF, ASYNC_DEF), (ASYNC_DEF, DEF)], ids=["def", "async"])
def test_a_lost_connection_is_replaced_where_a_link_is_of_the_other_kind(
    project: Project, postgres: dict[str, str], outer: dict[str, str], inner: dict[str, str]
) -> None:
    site = project(database=postgres | KEPT)
    site.write_tasks(mixed("async", outer, inner))
    site.start()
    enqueue(site, "a")
    site.wait_for_notes(2)
    end_backends(postgres)
    enqueue(site, "b", "c")
    site.wait_for_event("job.done", 3)
    assert not site.events("job.failed")


@pytest.mark.fault("G2")
def test_no_connection_is_shared_with_the_process_that_forks(
    project: Project, postgres: dict[str, str]
) -> None:
    site = site_of(project, postgres, mode="process", wait=True, processes=3, concurrency=3)
    site.start()
    enqueue(site, "a", "b", "c")
    notes = site.wait_for_notes(3)
    of_jobs = {backend for _, _, backend, _ in notes}
    assert len(of_jobs) == len({pid for pid, *_ in notes}) == 3
    assert of_jobs == backends(postgres)
    for name in ("a", "b", "c"):
        site.let_go(name)
    wait_for(lambda: not backends(postgres))


@pytest.mark.fault("G1")
def test_a_lost_connection_fails_its_job_alone(project: Project, postgres: dict[str, str]) -> None:
    site = site_of(project, postgres, mode="process", wait=True)
    site.write_tasks(
        """
        from django.db import connection
        @worker.job(retry=False, concurrency=1)
        def work(name):
            with connection.cursor() as cursor:
                note(name)
                if name == "a":
                    wait_for_file(name)
                cursor.execute("SELECT 1")
        """
    )
    site.start()
    enqueue(site, "a", "b")
    site.wait_for_notes(1, "a")
    end_backends(postgres)
    site.let_go("a")
    assert "OperationalError" in site.wait_for_event("job.failed")["error_class"]
    site.wait_for_event("job.done")
    assert site.wait_for_notes(1, "b")
