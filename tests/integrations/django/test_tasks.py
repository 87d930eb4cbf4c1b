"""The backend of Django's task framework, with a real project and server."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest

from tests.helpers.django_project import FRAMEWORK, DjangoProject
from tests.helpers.records import raw_job
from tests.helpers.support import PATIENCE_S, wait_for
from tests.integrations.django.conftest import Project

SETTINGS = """
import importlib.util
FRAMEWORK = "django.tasks" if importlib.util.find_spec("django.tasks") else "django_tasks"
BACKEND = "pyworkers.integrations.django.TaskBackend"
TASKS = {
    "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail", "high"]},
    "hour": {"BACKEND": BACKEND, "OPTIONS": {"track": 3600}},
    "immediate": {"BACKEND": f"{FRAMEWORK}.backends.immediate.ImmediateBackend", "QUEUES": []},
}
"""
TASKS = (
    FRAMEWORK
    + """
@task
def add(one, other=0):
    return one + other

@task
async def add_async(one, other=0):
    return {"sum": one + other}

@task(takes_context=True, queue_name="mail")
def describe(context, word):
    result = context.task_result
    return [context.attempt, word, result.status, len(result.worker_ids), result.args, result.task.name]

@task
def refuse(text="no"):
    raise LookupError(text)

@task
async def refuse_async():
    raise LookupError("no")

@task
def returns_a_set():
    return {1, 2}

@task
def returns_bytes():
    return {"a": (b"b", None, True)}

@job_options(retry=1, retry_in=lambda *_: 0.1)
@task(takes_context=True)
def fail_twice(context):
    raise ValueError(f"attempt {context.attempt}")

@task
@job_options(retry=5, retry_in=lambda *_: 3600)
def fail_for_now():
    raise ValueError("not yet")

@task
def die_once():
    note("die")
    if not (base / "alive").exists():
        (base / "alive").touch()
        os.kill(os.getpid(), 9)
    return "alive"

@task
def hold():
    note("hold")
    wait_for_file("go")
"""
)
READ = (
    FRAMEWORK
    + """
import time
from shop import tasks
from pyworkers.integrations.django import worker

def shown(result):
    times = [result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at]
    assert all(moment is None or moment.tzinfo for moment in times)
    return {
        "status": str(result.status.value), "args": result.args, "kwargs": result.kwargs,
        "task": result.task.name, "queue": result.task.queue_name, "priority": result.task.priority,
        "value": result._return_value, "attempts": result.attempts, "finished": result.is_finished,
        "errors": [[error.exception_class.__name__, error.traceback] for error in result.errors],
        "times": [moment and moment.timestamp() for moment in times],
    }

def until(result, condition=lambda result: result.is_finished):
    deadline = time.monotonic() + PATIENCE
    while not condition(result):
        assert time.monotonic() < deadline, shown(result)
        time.sleep(0.02)
        result.refresh()
    return result
"""
).replace("PATIENCE", str(PATIENCE_S - 5))


class Tasks:
    """A project with the tasks, and programs that enqueue them."""

    def __init__(self, site: DjangoProject) -> None:
        self.site = site

    def run(self, code: str) -> Any:
        """What a program of the project prints as JSON."""
        return self.site.run(READ + textwrap.dedent(code))


@pytest.fixture
def tasks(project: Project) -> Tasks:
    site = project(settings=SETTINGS)
    site.write_tasks(TASKS)
    return Tasks(site)


@pytest.fixture
def served(tasks: Tasks) -> Tasks:
    tasks.site.start()
    return tasks


def test_the_results_are_those_of_djangos_own_backend(served: Tasks) -> None:
    calls = """
        calls = {
            "returns": (tasks.add, [3], {}),
            "keywords": (tasks.add, [3], {"other": 4}),
            "async": (tasks.add_async, [3, 4], {}),
            "context": (tasks.describe, ["word"], {}),
            "tuple": (tasks.add, [("a", ["b"])], {"other": ("c",)}),
            "raises": (tasks.refuse, ["a text"], {}),
            "raises async": (tasks.refuse_async, [], {}),
            "too many": (tasks.add, [1, 2, 3], {}),
            "not json": (tasks.returns_a_set, [], {}),
            "normalized": (tasks.returns_bytes, [], {}),
        }
    """
    found = served.run(
        textwrap.dedent(calls)
        + """
def all_of(backend):
    found = {}
    for name, (task, args, kwargs) in calls.items():
        found[name] = task.using(backend=backend).enqueue(*args, **kwargs)
    return {name: shown(until(result)) for name, result in found.items()}
print(json.dumps([all_of("default"), all_of("immediate")]))
"""
    )
    ours, djangos = found
    assert djangos["returns"]["value"] == 3
    for name, expected in djangos.items():
        result = ours[name]
        for one in (result, expected):
            enqueued, started, attempted, finished = one.pop("times")
            assert enqueued <= started == attempted <= finished
            # The frames of the backend's own code differ.
            one["errors"] = [[kind, text.splitlines()[-1]] for kind, text in one["errors"]]
        assert result == expected, name


def test_what_djangos_own_backend_refuses_is_refused(tasks: Tasks) -> None:
    refused = {
        "tasks.add.using(backend={!r}).enqueue({{1, 2}})": "TypeError",
        "tasks.add.using(backend={!r}, priority=101)": "InvalidTask",
        "tasks.add.using(backend={!r}, priority=5.5)": "InvalidTask",
        "task(backend={!r})(len)": "InvalidTask",
        "task(backend={!r}, takes_context=True)(tasks.add.func)": "InvalidTask",
        "tasks.add.using(backend={!r}, run_after=__import__('datetime').datetime.now())": "InvalidTask",
    }
    program = """
def refused(call):
    try:
        eval(call)
    except Exception as error:
        return type(error).__name__.removesuffix("Error")
    return "accepted"
"""
    for backend in ("default", "immediate"):
        calls = {call.format(backend): error.removesuffix("Error") for call, error in refused.items()}
        found = tasks.run(f"{program}\nprint(json.dumps({{call: refused(call) for call in {[*calls]!r}}}))")
        assert found == calls


def test_a_failed_task_is_ready_until_its_next_attempt(served: Tasks) -> None:
    [waiting, dead] = served.run(
        """
        waiting = until(tasks.fail_for_now.enqueue(), lambda result: result.errors)
        dead = until(tasks.fail_twice.enqueue())
        print(json.dumps([shown(waiting), shown(dead)]))
        """
    )
    assert (waiting["status"], waiting["attempts"], waiting["finished"]) == ("READY", 1, False)
    assert waiting["times"][3] is None
    [[kind, trace]] = waiting["errors"]
    assert kind == "ValueError"
    assert trace.startswith("Traceback (most recent call last):\n")
    assert trace.endswith("ValueError: not yet\n")
    assert (dead["status"], dead["attempts"], dead["finished"]) == ("FAILED", 2, True)
    assert [trace.splitlines()[-1] for _, trace in dead["errors"]] == [
        "ValueError: attempt 1", "ValueError: attempt 2",
    ]  # fmt: skip
    enqueued, started, attempted, finished = dead["times"]
    assert enqueued <= started < attempted <= finished


@pytest.mark.fault("J4")
def test_a_task_whose_worker_is_killed_runs_again(served: Tasks) -> None:
    found = served.run("print(json.dumps(shown(until(tasks.die_once.enqueue()))))")
    assert (found["status"], found["value"], found["attempts"]) == ("SUCCESSFUL", "alive", 2)
    assert found["errors"] == [["WorkerLost", found["errors"][0][1]]]
    assert "was killed by SIGKILL" in found["errors"][0][1]
    assert len({pid for pid, *_ in served.site.wait_for_notes(2, "die")}) == 2


def test_a_result_is_found_by_any_process_and_by_its_task_alone(served: Tasks) -> None:
    jid, ready = served.run(
        """
        result = tasks.hold.enqueue()
        same = task_backends["default"].get_result(result.id)
        print(json.dumps([result.id, same == result or str(same.status)]))
        """
    )
    # The server may have started it before it was read.
    assert ready in (True, "RUNNING")
    served.site.wait_for_notes(1, "hold")
    found = served.run(
        f"""
        import asyncio
        def name_of(call):
            try:
                return call().task.name
            except Exception as error:
                return type(error).__name__
        plain = worker.enqueue("default", "Any", track=60)
        default, hour = task_backends["default"], task_backends["hour"]
        print(json.dumps([
            name_of(lambda: tasks.hold.get_result({jid!r})),
            asyncio.run(default.aget_result({jid!r})).status,
            name_of(lambda: tasks.add.get_result({jid!r})),
            name_of(lambda: hour.get_result({jid!r})),
            name_of(lambda: default.get_result("unknown")),
            name_of(lambda: default.get_result("a\\nb")),
            name_of(lambda: default.get_result("")),
            name_of(lambda: default.get_result(plain)),
        ]))
        """
    )
    missing = "TaskResultDoesNotExist"
    assert found == ["hold", "RUNNING", "TaskResultMismatch", *[missing] * 5]
    served.site.let_go("go")


def test_results_are_kept_as_long_as_the_backend_says(served: Tasks) -> None:
    jids = served.run(
        """
        results = [until(tasks.add.using(backend=name).enqueue(1)).id for name in ("default", "hour")]
        print(json.dumps(results))
        """
    )
    site = served.site
    day, hour = (site.redis.ttl(site.keys.job(jid)) for jid in jids)
    assert 86_300 < day <= 86_400
    assert 3500 < hour <= 3600


def test_a_task_of_a_module_that_the_reader_has_not_imported_is_found(served: Tasks) -> None:
    jid = served.run("print(json.dumps(until(tasks.add.enqueue(1)).id))")
    found = served.site.run(
        f"""{FRAMEWORK}
result = task_backends["default"].get_result({jid!r})
print(json.dumps([result.task.module_path, result.return_value]))
"""
    )
    assert found == ["shop.tasks.add", 1]


def test_run_after_schedules_a_task(tasks: Tasks) -> None:
    jid, at = tasks.run(
        """
        from datetime import timedelta
        from django.utils import timezone
        at = timezone.now() + timedelta(hours=1)
        result = tasks.add.using(run_after=at).enqueue(1)
        same = task_backends["default"].get_result(result.id)
        assert same == result and same.task.run_after == at, same
        print(json.dumps([result.id, at.timestamp()]))
        """
    )
    site = tasks.site
    [(raw, score)] = site.zset("schedule")
    assert json.loads(raw)["jid"] == jid
    assert score == pytest.approx(at)


def test_bad_jobs_of_other_programs_are_dead_with_the_reason(served: Tasks) -> None:
    site = served.site
    wrong = [[], [1, 2], [[1]], [[1], {}, 3], [{}, []]]
    for args in wrong:
        site.push("default", raw_job("wrong", **{"class": "shop.tasks.add", "args": args, "retry": 5}))
    unknown = {"class": "shop.tasks.gone", "args": [[], {}], "misfits": 20, "misfit_at": 1_795_225_197.5}
    site.push("default", raw_job("gone", **unknown))
    wait_for(lambda: len(site.zset("dead")) == 6, message="all jobs are dead")
    dead = [json.loads(raw) for raw, _ in site.zset("dead")]
    reasons = {(job["class"], job["error_class"], job["error_message"]) for job in dead}
    assert reasons == {
        (
            "shop.tasks.add",
            "BadMessageError",
            "the arguments of the task shop.tasks.add are not [args, kwargs]",
        ),
        (
            "shop.tasks.gone",
            "UnknownJobError",
            "no handler for the class 'shop.tasks.gone' of the queue 'default'",
        ),
    }
