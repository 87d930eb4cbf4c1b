"""Processes that are killed around the commits of a Django project."""

from __future__ import annotations

import os
import signal

import pytest

from tests.helpers.support import wait_for
from tests.integrations.django.conftest import Project

TASKS = """
from django.db import connection, transaction

@worker.job
def work():
    note("work")

@worker.job
def risky():
    with transaction.atomic():
        connection.cursor().execute("INSERT INTO t VALUES (1)")
        work.enqueue()
        note("inside")
        wait_for_file("go")
    note("committed")
"""
TABLE = """
from django.db import connection, transaction
from pyworkers.api import Queue
from pyworkers.integrations.django import worker
from shop.tasks import risky, work
"""
ROWS = """
with connection.cursor() as cursor:
    cursor.execute("SELECT count(*) FROM t")
    rows = cursor.fetchone()[0]
"""


@pytest.mark.fault("G4")
def test_a_worker_killed_in_a_transaction_leaves_no_job_of_it(
    project: Project, database: dict[str, str]
) -> None:
    site = project(database=database)
    site.write_tasks(TASKS)
    site.run(
        f"""{TABLE}
connection.cursor().execute("CREATE TABLE t (id integer)")
print(json.dumps(risky.enqueue()))
"""
    )
    site.start()
    first = site.wait_for_notes(1, "inside")[0][0]
    os.kill(first, signal.SIGKILL)
    second = wait_for(lambda: [pid for pid, *_ in site.wait_for_notes(1, "inside") if pid != first])[0]
    assert not [words for _, *words in site.ledger() if words == ["work"]]
    site.let_go("go")
    site.wait_for_notes(1, "work")
    wait_for(lambda: site.settled("default"))
    assert [pid for pid, *_ in site.wait_for_notes(1, "committed")] == [second]
    assert len(site.wait_for_notes(1, "work")) == 1
    assert site.run(f"{TABLE}{ROWS}\nprint(json.dumps(rows))") == 1


@pytest.mark.fault("G6")
def test_a_process_killed_after_the_commit_keeps_the_data_and_loses_the_jobs(project: Project) -> None:
    site = project()
    site.write_tasks(TASKS)
    program = f"""{TABLE}
import os, signal
if not (child := os.fork()):
    connection.cursor().execute("CREATE TABLE t (id integer)")
    with transaction.atomic():
        transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
        connection.cursor().execute("INSERT INTO t VALUES (1)")
        work.enqueue()
_, status = os.waitpid(child, 0)
{ROWS}
jobs = len(list(Queue("default", worker.redis_config())))
print(json.dumps([os.waitstatus_to_exitcode(status), rows, jobs]))
"""
    assert site.run(program) == [-signal.SIGKILL, 1, 0]
