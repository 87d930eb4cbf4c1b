"""Programs that enqueue Django's tasks: their transactions, tests, options, signals and settings."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest

from tests.helpers.django_project import FRAMEWORK, DjangoProject
from tests.helpers.support import PATIENCE_S, wait_for
from tests.integrations.django.conftest import Project, manage_each

SETTINGS = """
TASKS = {"default": {"BACKEND": "pyworkers.integrations.django.TaskBackend"}}
"""
TASKS = (
    FRAMEWORK
    + """
@task
def add(one, other=0):
    return one + other

@task
async def add_async(one, other=0):
    return one + other

@task
def refuse():
    raise LookupError("no")
"""
)
READ = (
    FRAMEWORK
    + """
from pyworkers.integrations.django import worker
from pyworkers.testing import fake, inline
from shop import tasks

def error_of(call):
    try:
        return call() and "no error"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
"""
)


def run(site: DjangoProject, code: str) -> Any:
    """What a program of the project prints as JSON."""
    return site.run(READ + textwrap.dedent(code))


@pytest.fixture
def site(project: Project) -> DjangoProject:
    found = project(settings=SETTINGS)
    found.write_tasks(TASKS)
    return found


def test_a_task_is_enqueued_by_the_commit_and_dropped_by_a_rollback(site: DjangoProject) -> None:
    found = run(
        site,
        """
        from django.db import transaction
        waiting = lambda: worker.client.history(kept.id) is not None
        with transaction.atomic():
            kept = tasks.add.enqueue(1)
            early = waiting()
            missing = error_of(kept.refresh)
            try:
                with transaction.atomic():
                    dropped = tasks.add.enqueue(2)
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass
        kept.refresh()
        print(json.dumps([early, missing, waiting(), kept.status, error_of(dropped.refresh)]))
        """,
    )
    early, missing, late, status, dropped = found
    assert (early, late, status) == (False, True, "READY")
    assert missing.startswith("TaskResultDoesNotExist: ")
    assert dropped.startswith("TaskResultDoesNotExist: ")
    assert site.waiting("default") == 1


def test_fake_and_inline_run_tasks(site: DjangoProject) -> None:
    found = run(
        site,
        """
        import asyncio
        with fake() as queue:
            one, other = tasks.add.enqueue(1, other=2), asyncio.run(tasks.add_async.aenqueue(3))
            waiting = [job.job_class for job in queue.jobs]
            queue.assert_enqueued("shop.tasks.add", [1], {"other": 2})
            queue.drain()
            one.refresh(), asyncio.run(other.arefresh())
            drained = [one.return_value, other.return_value, one.status, one.attempts]
            failed = tasks.refuse.enqueue()
            raised = error_of(queue.drain)
            failed.refresh()
            raised = [raised, failed.status, failed.errors[0].exception_class_path]
        with inline():
            ran = tasks.add.enqueue(5)
            ran.refresh()
            inlined = [ran.return_value, error_of(tasks.refuse.enqueue)]
        print(json.dumps([waiting, drained, raised, inlined]))
        """,
    )
    assert found == [
        ["shop.tasks.add", "shop.tasks.add_async"],
        [3, 3, "SUCCESSFUL", 1],
        ["LookupError: no", "FAILED", "builtins.LookupError"],
        [5, "LookupError: no"],
    ]


def test_a_test_case_sees_tasks_as_callbacks_of_the_commit(site: DjangoProject) -> None:
    site.write(
        "shop/tests.py",
        """
        from django.test import TestCase
        from pyworkers.integrations.django import worker
        from pyworkers.testing import fake, inline
        from shop import tasks

        class Tests(TestCase):
            def test_inline(self):
                with inline():
                    result = tasks.add.enqueue(1, other=2)
                    result.refresh()
                self.assertEqual(result.return_value, 3)

            def test_fake(self):
                with fake() as queue:
                    tasks.add.enqueue(1)
                    self.assertEqual(len(queue.jobs), 1)

            def test_captured(self):
                with self.captureOnCommitCallbacks() as callbacks:
                    kept = tasks.add.enqueue(1)
                self.assertEqual(len(callbacks), 1)
                with self.assertRaises(Exception):
                    kept.refresh()

            def test_executed(self):
                with self.captureOnCommitCallbacks(execute=True):
                    pushed = tasks.add.enqueue(1)
                pushed.refresh()
                self.assertEqual(pushed.status, "READY")
        """,
    )
    shown = site.manage("test", "shop.tests")
    assert "Ran 4 tests" in shown
    assert "\nOK\n" in shown
    assert site.waiting("default") == 1


def test_signals_are_sent_where_it_happens_and_cannot_harm_a_task(site: DjangoProject) -> None:
    site.write_tasks(
        TASKS
        + """
def show(name):
    def receive(sender, task_result, **_):
        errors = [error.exception_class_path for error in task_result.errors]
        value = task_result.return_value if task_result.status == "SUCCESSFUL" else None
        task, status = task_result.task.name, task_result.status
        note(name, sender.__name__, task, status, task_result.attempts, value, errors)
        raise RuntimeError("a receiver is broken")
    return receive
enqueued, started, finished = map(show, ["enqueued", "started", "finished"])
signals.task_started.connect(started)
signals.task_finished.connect(finished)

@task
@job_options(retry=1, retry_in=lambda *_: 0.1, on_exhausted=lambda message, error: note("own", str(error)))
def fail():
    raise LookupError("no")

@task
def keep_no_json():
    return "\\ud800"
"""
    )
    site.start()
    refused = run(
        site,
        """
        tasks.add.enqueue(1), tasks.add_async.enqueue(2), tasks.keep_no_json.enqueue()
        signals.task_enqueued.connect(tasks.enqueued)
        print(json.dumps(error_of(tasks.fail.enqueue)))
        """,
    )
    # As of Django's own backends: the job is enqueued before.
    assert refused == "RuntimeError: a receiver is broken"
    wait_for(lambda: len(site.ledger()) == 11, message="all signals")
    events = [words for _, *words in site.ledger()]
    sender = "TaskBackend"
    expected = [
        ["enqueued", sender, "fail", "READY", 0, None, []],
        ["finished", sender, "add", "SUCCESSFUL", 1, 1, []],
        ["finished", sender, "add_async", "SUCCESSFUL", 1, 2, []],
        ["finished", sender, "fail", "FAILED", 2, None, ["builtins.LookupError"]],
        [
            "finished",
            sender,
            "keep_no_json",
            "FAILED",
            1,
            None,
            ["pyworkers.errors.BadResultError"],
        ],
        ["started", sender, "keep_no_json", "RUNNING", 1, None, []],
        ["own", "no"],
        ["started", sender, "add", "RUNNING", 1, None, []],
        ["started", sender, "add_async", "RUNNING", 1, None, []],
        ["started", sender, "fail", "RUNNING", 1, None, []],
        ["started", sender, "fail", "RUNNING", 2, None, []],
    ]
    assert sorted(events, key=str) == sorted(expected, key=str)
    wait_for(lambda: len(site.events("job.done")) == 2, message="both tasks are done")


def test_the_options_of_a_task_travel_with_it(site: DjangoProject) -> None:
    site.write_tasks(
        TASKS
        + """
@job_options(tags=["above"], extra={"tenant": 7})
@task
def above(): ...

@task
@job_options(tags=["below"], retry_on=[KeyError], track=60)
def below(): ...

@task
@job_options(unique_for=60)
def once(number): ...
"""
    )
    found = run(
        site,
        """
        with fake() as queue:
            tasks.above.enqueue(), tasks.below.enqueue(), tasks.add.enqueue(1)
            fields = ("tags", "tenant", "retry", "track", "history", "class")
            sent = [{name: job.data[name] for name in fields if name in job.data} for job in queue.jobs]
        same = [tasks.once.enqueue(number).id for number in (1, 1, 2)]
        refused = [
            error_of(lambda: job_options(queue="q")), error_of(lambda: job_options(timeot=3)),
            error_of(lambda: tasks.add.enqueue(float("nan"))),
        ]
        print(json.dumps([sent, [same[0] == jid for jid in same], refused]))
        """,
    )
    sent, same, refused = found
    kept = {"track": 86_400, "history": True}
    assert sent == [
        {"class": "shop.tasks.above", "tags": ["above"], "tenant": 7, "retry": 0, **kept},
        {"class": "shop.tasks.below", "tags": ["below"], "retry": True, **kept, "track": 60},
        {"class": "shop.tasks.add", "retry": 0, **kept},
    ]
    assert same == [True, True, False]
    queue, misspelt, nan = refused
    assert "DeclarationError: " in queue
    assert "job_options does not take queue" in queue
    assert "job_options has no option timeot" in misspelt
    assert nan.startswith("InvalidTask")
    assert "shop.tasks.add: " in nan


WRONG = {
    "TASKS['default']['OPTIONS'] = {'trak': 60}": "OPTIONS has no key 'trak': did you mean track?",
    "TASKS['default']['OPTIONS'] = {'track': 0}": "track is seconds above 0",
    "PYWORKERS['task_queues'] = {'high': 7}": "['high'] must be the lowest and the highest priority",
    "PYWORKERS['task_queues'] = {'high': [5, 101]}": "must be the lowest and the highest priority",
    "PYWORKERS['task_queues'] = {'a': [0, 9], 'b': [9, 10]}": "the priority 9 has two queues, 'a' and 'b'",
    "PYWORKERS['task_queues'] = {'': [0, 9]}": "PYWORKERS[\"task_queues\"]['']: ",
}
"""A change of the settings, and what the check says about it."""


def test_a_wrong_setting_is_named(project: Project) -> None:
    found = manage_each(project(settings=SETTINGS), [(change, "check") for change in WRONG])
    for (change, expected), (code, shown) in zip(WRONG.items(), found, strict=True):
        assert code == 1, change
        assert "(pyworkers.E010) " in shown, change
        assert expected in shown, change


def test_queues_that_the_configuration_places_are_left_to_it(project: Project) -> None:
    queues = {"high": [50, 100], "default": [0, 49]}
    groups = {"all": {"queues": ["low", "default", "high"]}}
    site = project(settings=SETTINGS, pyworkers={"task_queues": queues, "groups": groups})
    site.write_tasks(TASKS)
    assert run(site, "print(json.dumps(worker.manifest()['groups']))") == {}
    tables = {"high": {"concurrency": 2}, "default": {"concurrency": 1}}
    site = project(settings=SETTINGS, pyworkers={"task_queues": queues, "queues": tables})
    found = run(site, "print(json.dumps(worker.manifest()['groups']))")
    assert {name: group["queues"] for name, group in found.items()} == {"high": ["high"]}
    site.start()
    jid = run(site, "print(json.dumps(tasks.add.using(priority=60).enqueue(1).id))")
    assert site.wait_for_event("job.done", jid=jid)["queue"] == "high"
    assert site.stop() == 0


def test_a_dead_task_is_listed_by_its_path(site: DjangoProject) -> None:
    site.start()
    run(site, "print(json.dumps(tasks.refuse.enqueue().id))")
    wait_for(lambda: site.zset("dead"), PATIENCE_S)
    [(raw, _)] = site.zset("dead")
    assert json.loads(raw)["class"] == "shop.tasks.refuse"
    assert "shop.tasks.refuse" in site.manage("pyworkers", "dead")


def test_a_project_without_tasks_does_not_import_the_framework(project: Project) -> None:
    site = project()
    site.write_tasks("@worker.job\ndef work(): ...")
    found = site.run(
        """
        import sys
        from pyworkers.integrations.django import worker
        worker.manifest()
        print(json.dumps([name for name in sys.modules if "django_tasks" in name or ".task" in name
                          if name.startswith(("pyworkers.", "django_tasks"))]))
        """
    )
    assert found == []
