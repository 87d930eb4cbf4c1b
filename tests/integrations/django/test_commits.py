"""Jobs that are enqueued in a transaction: after its commit, or not at all."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from tests.helpers.django_project import DjangoProject
from tests.integrations.django.conftest import Project

TASKS = """
@worker.job
def work(text="", batch_id=None):
    note("work", text)

@worker.job(queue="small", max_waiting=1)
def small(text):
    pass

@worker.job
def finish(text):
    note("finish", text)

@worker.job
def outer():
    from django.db import transaction
    from pyworkers import current_message
    with transaction.atomic():
        with current_message().batch:
            work.enqueue("inner")
        note("open")
    wait_for_file("go")
"""
BEFORE = """
from django.db import connection, transaction
from pyworkers import chain
from pyworkers.api import Queue, ScheduledSet
from pyworkers.integrations.django import worker
from shop.tasks import finish, small, work
config = worker.redis_config()
def waiting(queue="default"):
    return sorted([job.args[0] if job.args else None for job in Queue(queue, config)])
def rolled_back(function, *args, **options):
    try:
        with transaction.atomic():
            function(*args, **options)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
seen = []
"""
DELETED = "not enqueued after the commit: the batch ID is unknown: it has expired, or was deleted\n"
AFTER = "\nprint(json.dumps(seen))"


@pytest.fixture
def shop(project: Project, database: dict[str, str]) -> DjangoProject:
    return shop_of(project, database=database)


@pytest.fixture
def light(project: Project) -> DjangoProject:
    """The same with SQLite alone, where the database makes no difference."""
    return shop_of(project)


def shop_of(project: Project, **more: Any) -> DjangoProject:
    site = project(**more)
    site.write_tasks(TASKS)
    return site


def seen(site: DjangoProject, code: str) -> Any:
    """What a program has appended to ``seen``."""
    return site.run(BEFORE + textwrap.dedent(code) + AFTER)


def test_a_job_is_enqueued_after_the_commit(shop: DjangoProject) -> None:
    assert seen(
        shop,
        """
        with transaction.atomic():
            jid = work.enqueue("a")
            with transaction.atomic():
                work.enqueue("b")
            seen.append(waiting())
        seen.append(waiting())
        seen.append([jid in [job.jid for job in Queue("default", config)]])
        work.enqueue("c")
        seen.append(waiting())
        """,
    ) == [[], ["a", "b"], [True], ["a", "b", "c"]]


@pytest.mark.fault("G3")
def test_a_rollback_drops_its_jobs(shop: DjangoProject) -> None:
    assert seen(
        shop,
        """
        rolled_back(work.enqueue, "a")
        with transaction.atomic():
            work.enqueue("b")
            rolled_back(work.enqueue, "c")
            work.enqueue("d")
        seen.append(waiting())
        """,
    ) == [["b", "d"]]


def test_every_kind_of_call_waits_for_the_commit(light: DjangoProject) -> None:
    assert seen(
        light,
        """
        import datetime
        from asgiref.sync import async_to_sync
        with transaction.atomic():
            work.enqueue_in(60, "later")
            work.enqueue_at(datetime.datetime.now(datetime.UTC), "at")
            work.enqueue_bulk([("bulk",)] * 1001)
            worker.enqueue("default", "Foreign", ["foreign"])
            work.try_enqueue("try")
            connection.ensure_connection()
            async_to_sync(work.aenqueue)("async")
            seen.append([waiting(), len(list(ScheduledSet(config)))])
        found = waiting()
        seen.append([found.count("bulk"), sorted({*found} - {"bulk"}), len(list(ScheduledSet(config)))])
        rolled_back(async_to_sync(work.aenqueue), "no")
        seen.append(len(waiting()) - len(found))
        """,
    ) == [[[], 0], [1001, ["async", "at", "foreign", "try"], 1], 0]


def test_a_job_can_be_enqueued_at_once(light: DjangoProject) -> None:
    assert seen(
        light,
        """
        from asgiref.sync import async_to_sync
        with transaction.atomic():
            work.options(on_commit=False).enqueue("a")
            async_to_sync(work.options(on_commit=False).aenqueue)("b")
            work.options(on_commit=False).options(on_commit=True).enqueue("c")
            seen.append(waiting())
        seen.append(waiting())
        """,
    ) == [["a", "b"], ["a", "b", "c"]]


def test_the_project_decides_what_jobs_do_without_the_option(project: Project) -> None:
    assert seen(
        shop_of(project, pyworkers={"on_commit": False}),
        """
        with transaction.atomic():
            work.enqueue("a")
            work.options(on_commit=True).enqueue("b")
            seen.append(waiting())
        seen.append(waiting())
        """,
    ) == [["a"], ["a", "b"]]


def test_the_transactions_are_those_of_one_connection(project: Project) -> None:
    site = shop_of(
        project,
        pyworkers={"database": "other"},
        settings="\nDATABASES['other'] = dict(DATABASES['default'], NAME='other')\n",
    )
    assert seen(
        site,
        """
        with transaction.atomic():
            work.enqueue("a")
            seen.append(waiting())
        with transaction.atomic(using="other"):
            work.enqueue("b")
            seen.append(waiting())
        seen.append(waiting())
        """,
    ) == [["a"], ["a"], ["a", "b"]]


@pytest.mark.fault("G3")
def test_a_batch_is_sent_after_the_commit(light: DjangoProject) -> None:
    assert seen(
        light,
        """
        with transaction.atomic():
            with worker.batch() as batch:
                work.enqueue("a")
                rolled_back(work.enqueue, "b")
                work.options(on_commit=False).enqueue("c")
                with worker.batch() as inner:
                    work.enqueue("d")
            seen.append(waiting())
        seen.append([waiting(), batch.status().total, inner.status().total])
        def dropped():
            with worker.batch(on_success=finish.call("no")):
                work.enqueue("e")
        rolled_back(dropped)
        with transaction.atomic(), worker.batch() as batch:
            work.enqueue("f")
            rolled_back(dropped)
        seen.append([waiting(), batch.status().total])
        """,
    ) == [[], [["a", "c", "d"], 3, 1], [["a", "c", "d", "f"], 1]]


def test_a_transaction_inside_a_batch_brings_its_members_in(light: DjangoProject) -> None:
    assert seen(
        light,
        """
        with worker.batch() as batch:
            rolled_back(work.enqueue, "a")
            with transaction.atomic():
                work.enqueue("b")
            seen.append(waiting())
        seen.append([waiting(), batch.status().total])
        """,
    ) == [[], [["b"], 1]]


def test_an_async_batch_and_a_canvas_wait_as_well(light: DjangoProject) -> None:
    assert seen(
        light,
        """
        from asgiref.sync import async_to_sync
        async def members():
            async with worker.batch() as batch:
                await work.aenqueue("a")
            await chain(work.call("b"), finish.call("c")).aenqueue()
            return batch
        with transaction.atomic():
            connection.ensure_connection()
            batch = async_to_sync(members)()
            chain(work.call("d"), finish.call("e")).enqueue()
            seen.append(waiting())
        rolled_back(chain(work.call("f")).enqueue)
        seen.append([waiting(), batch.status().total])
        """,
    ) == [[], [["a", "b", "d"], 1]]


def test_a_running_job_adds_members_to_its_batch_after_the_commit(light: DjangoProject) -> None:
    code = """
        from shop.tasks import outer
        with worker.batch(on_success=finish.call("all")):
            outer.enqueue()
        """
    seen(light, code)
    light.start()
    light.wait_for_notes(1, "open")
    light.wait_for_notes(1, "work", "inner")
    light.let_go("go")
    light.wait_for_notes(1, "finish", "all")


@pytest.mark.fault("G5")
def test_a_refused_job_costs_no_other(light: DjangoProject) -> None:
    assert seen(
        light,
        """
        import io, logging
        logging.getLogger("pyworkers").addHandler(logging.StreamHandler(text := io.StringIO()))
        with transaction.atomic():
            small.enqueue("a")
            small.enqueue("b")
            work.enqueue("c")
        seen.append([waiting("small"), waiting(), text.getvalue()])
        """,
    ) == [[["a"], ["c"], "not enqueued after the commit: the queue 'small' is full: max_waiting is 1\n"]]


@pytest.mark.fault("G5")
def test_a_batch_that_was_deleted_costs_no_other_job(light: DjangoProject) -> None:
    assert seen(
        light,
        """
        import io, logging
        from pyworkers import Client
        from pyworkers.api import BatchSet
        from pyworkers.plugins.batches import Batch
        from pyworkers.protocol.flow.plans import BatchPlan
        logging.getLogger("pyworkers").addHandler(logging.StreamHandler(text := io.StringIO()))
        with worker.batch() as batch:
            work.enqueue("a")
        with transaction.atomic():
            with Batch(Client.of(worker), batch.id, BatchPlan(batch.id, "h", exists=True)):
                work.enqueue("b")
            work.enqueue("c")
            BatchSet(config).find(batch.id).delete()
        seen.append([waiting(), text.getvalue().replace(batch.id, "ID")])
        """,
    ) == [[["a", "c"], DELETED]]


@pytest.mark.fault("G5")
def test_an_outage_at_the_commit_is_an_error_although_the_data_is_there(project: Project) -> None:
    site = shop_of(project, pyworkers={"redis": {"url": "redis://127.0.0.1:1/0"}})
    assert seen(
        site,
        """
        from pyworkers import RedisUnavailableError
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (id integer)")
        try:
            with transaction.atomic():
                connection.cursor().execute("INSERT INTO t VALUES (1)")
                work.enqueue("a")
        except RedisUnavailableError:
            seen.append("unreachable")
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM t")
            seen.append(cursor.fetchall())
        """,
    ) == ["unreachable", [[1]]]


def test_tests_of_the_project_see_the_jobs(light: DjangoProject) -> None:
    light.write(
        "shop/tests.py",
        """
        from django.db import transaction
        from django.test import TestCase
        from pyworkers.api import Queue
        from pyworkers.integrations.django import worker
        from pyworkers.testing import fake, inline
        from shop.tasks import work

        def waiting():
            return [job.args[0] for job in Queue("default", worker.redis_config())]

        class Commits(TestCase):
            def test_callbacks(self):
                with self.captureOnCommitCallbacks() as callbacks:
                    work.enqueue("a")
                assert len(callbacks) == 1 and waiting() == []
                with self.captureOnCommitCallbacks(execute=True):
                    work.enqueue("b")
                assert waiting() == ["b"]

            async def test_callbacks_async(self):
                await work.aenqueue("c")
                assert "c" not in waiting()

            def test_fake(self):
                with fake() as queue, transaction.atomic():
                    work.enqueue("c")
                    with worker.batch():
                        work.enqueue("d")
                    assert [job.args for job in queue.jobs] == [["c"], ["d"]]
                    queue.drain()
                assert "c" not in waiting()

            def test_inline(self):
                with inline():
                    work.enqueue("e")
                assert "e" not in waiting()
        """,
    )
    assert "Ran 4 tests" in light.manage("test")
    assert [words for _, *words in light.ledger()] == [["work", "c"], ["work", "d"], ["work", "e"]]


def test_jobs_use_the_connection_of_their_test_where_the_page_has_them_drained(light: DjangoProject) -> None:
    light.write_tasks(
        """
        from asgiref.sync import sync_to_async
        from django.db import connection

        def is_that_of_the_test():
            return connection.in_atomic_block

        @worker.job
        def plain(where):
            note("plain", where, is_that_of_the_test())

        @worker.job
        async def in_a_loop(where):
            note("async", where, await sync_to_async(is_that_of_the_test)())
        """
    )
    light.write(
        "shop/tests.py",
        """
        from asgiref.sync import sync_to_async
        from django.test import TestCase
        from pyworkers.testing import fake
        from shop.tasks import in_a_loop, plain

        class Connections(TestCase):
            def test_1(self):
                with fake() as queue:
                    plain.enqueue("def test")
                    queue.drain()

            async def test_2(self):
                with fake() as queue:
                    await in_a_loop.aenqueue("async test")
                    queue.drain()
                    await plain.aenqueue("async test")
                    await sync_to_async(queue.drain)()
        """,
    )
    assert "Ran 2 tests" in light.manage("test")
    assert [words for _, *words in light.ledger()] == [
        ["plain", "def test", True],
        ["async", "async test", True],
        ["plain", "async test", True],
    ]
