"""The plugin for pytest, in its own pytest: with the environment of the suite, and in a fresh one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.support import ROOT

APP = """
    from pyworkers import Worker

    worker = Worker("redis://127.0.0.1:1/0")

    @worker.job(queue="mail", track=60)
    def send(user_id: int, subject: str = "hi") -> str:
        return f"{subject} to {user_id}"

    @worker.job(track=60)
    async def fetch(url: str) -> str:
        return url.upper()

    @worker.job
    def remind(user_id: int) -> None:
        send.enqueue_in(3600, user_id, "still there?")
"""

# Other plugins that are installed here: some take longer to import than these tests to run.
OTHERS = ("valkey", "anyio", "hypothesispytest", "timeout", "randomly", "cacheprovider")
ALONE = [word for name in OTHERS for word in ("-p", f"no:{name}")]
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a file of tests, with these options, and returns the output; it ends with the numbers."""
    write(tmp_path, "tasks", APP)

    def run(code: str, *options: str, python: str = sys.executable, conftest: str = "") -> str:
        write(tmp_path, "test_it", code)
        write(tmp_path, "conftest", conftest)
        command = [python, "-m", "pytest", *ALONE, *options]
        # Of this run of pytest, its processes and coverage are no business of the other one.
        mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(command, cwd=tmp_path, env=mine, capture_output=True, text=True)
        return done.stdout + done.stderr

    return run


def write(folder: Path, name: str, code: str) -> None:
    lines = code.strip("\n").splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    (folder / f"{name}.py").write_text("".join(f"{line[margin:]}\n" for line in lines))


def test_jobs_are_kept_run_and_travel(run: Run) -> None:
    code = """
    from pyworkers import Client
    from tasks import fetch, remind, send, worker

    def test_jobs(jobs):
        send.enqueue(7)
        assert jobs.assert_enqueued(send, user_id=7).queue == "mail"
        assert jobs.drain() == 1
        assert jobs.ran[0].args == [7]

    def test_nothing_is_left_of_another_test(jobs):
        jobs.assert_none()
        remind.enqueue(7)
        assert jobs.drain(scheduled=False) == 1
        jobs.travel(hours=1)
        jobs.assert_enqueued(send, 7, "still there?")
        assert jobs.drain(scheduled=False) == 1

    def test_several_workers(jobs):
        from pyworkers import Worker
        other = Worker()
        ran = []
        @other.job
        def note(word): ran.append(word)
        note.enqueue("a")
        Client("redis://127.0.0.1:1/0").enqueue("mail", "send", [7])
        assert (jobs.drain(), ran) == (2, ["a"])

    def test_async(jobs):
        import asyncio

        async def main():
            await fetch.aenqueue("a")
            jobs.assert_enqueued(fetch, "a")
            assert jobs.drain() == 1
            return await worker.async_client.result(jobs.ran[0].jid)

        assert asyncio.run(main()) == "A"

    def test_inline(inline_jobs):
        jid = send.enqueue(7, "hello")
        assert [(job.jid, job.args) for job in inline_jobs.ran] == [(jid, [7, "hello"])]
    """
    assert "5 passed" in run(code, "--pyworkers-app", "tasks:worker")
    assert "5 passed" in run(code, "-o", "pyworkers_app=tasks:worker", "-n", "1")


def test_a_failed_assertion_is_short(run: Run) -> None:
    output = run("""
    from tasks import send

    def test_it(jobs):
        send.enqueue(7, "hallo")
        jobs.assert_enqueued(send, 7, "hello")
    """)
    assert [line[1:].strip() for line in output.splitlines() if line.startswith(("E ", "> "))] == [
        'jobs.assert_enqueued(send, 7, "hello")',
        "AssertionError: send(7, 'hello') was not enqueued; waiting: send(7, 'hallo')",
        "the nearest one differs:",
        "subject: 'hallo' instead of 'hello'",
    ]


def test_classes_of_unittest_and_django(run: Run) -> None:
    code = """
    import unittest
    import django.test
    import pytest
    from django.conf import settings
    from tasks import send

    settings.configure(DATABASES={})

    class TestPlain(unittest.TestCase):
        @pytest.fixture(autouse=True)
        def take(self, jobs):
            self.jobs = jobs

        def test_it(self):
            send.enqueue(7)
            self.jobs.assert_enqueued(send, 7)

    class TestDjango(django.test.SimpleTestCase):
        @pytest.fixture(autouse=True)
        def take(self, jobs):
            self.jobs = jobs

        def test_it(self):
            self.jobs.assert_none()
            send.enqueue(7)
            assert self.jobs.drain() == 1
    """
    assert "2 passed" in run(code)


def test_a_real_server(run: Run, valkey_binary: str) -> None:
    code = """
    import os
    import pytest
    from tasks import send, worker

    @pytest.fixture
    def pyworkers_config():
        return {"queues": {"mail": {"concurrency": 3}}}

    def test_it(pyworkers_server):
        assert pyworkers_server.pid != os.getpid()
        assert pyworkers_server.config.queues["mail"].concurrency == 3
        assert worker.result(send.enqueue(7)) == "hi to 7"
    """
    assert "1 passed" in run(code, "--pyworkers-app", "tasks:worker")
    output = run(code)
    assert "pyworkers_server needs an application: pytest --pyworkers-app tasks:worker" in output
    assert "1 error" in output


def test_an_option_that_names_no_worker(run: Run) -> None:
    code = "def test_it(jobs): pass"
    assert "tasks:send is a Job, not a Worker" in run(code, "--pyworkers-app", "tasks:send")
    assert "No module named 'missing'" in run(code, "--pyworkers-app", "missing:worker")


UNUSED = """
    import sys

    def pytest_sessionfinish(session):
        heavy = {"redis", "structlog", "tasks", "pyworkers.app", "pyworkers.testing"}
        print("imported:", sorted(heavy & sys.modules.keys()))
"""


def test_without_a_fixture_nothing_is_imported(run: Run) -> None:
    code = """
    import pytest

    @pytest.fixture
    def jobs():
        return ["of the project"]

    def test_it(jobs):
        assert jobs == ["of the project"]
    """
    # Of the other plugins that are installed here, some import these.
    for options in ((), ("--pyworkers-app", "tasks:worker")):
        output = run(code, "-s", "-W", "error", "-p", "no:xdist", *options, conftest=UNUSED)
        assert "imported: []" in output, output
        assert "1 passed" in output


def test_it_can_be_turned_off(run: Run) -> None:
    assert "fixture 'jobs' not found" in run("def test_it(jobs): pass", "-p", "no:pyworkers")


@pytest.mark.package
def test_in_a_fresh_environment(run: Run, tmp_path: Path) -> None:
    source, environment = tmp_path / "source", tmp_path / "environment"
    source.mkdir()
    # A build writes into the folder that it is made from.
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "pyworkers", source / "pyworkers", ignore=shutil.ignore_patterns("__pycache__"))
    check(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", python]
    check(*pip, "install", "--no-compile", f"{source}[embedded]", "pytest")
    code = """
    import pyworkers
    from tasks import send, worker

    def test_it_is_the_installed_one():
        assert "site-packages" in pyworkers.__file__

    def test_jobs(jobs):
        send.enqueue(7)
        jobs.assert_enqueued(send, 7)
        assert jobs.drain() == 1

    def test_server(pyworkers_server):
        assert worker.result(send.enqueue(7)) == "hi to 7"
    """
    output = run(code, "--pyworkers-app", "tasks:worker", "-W", "error", python=str(python))
    assert "3 passed" in output, output
    assert re.search(r"plugins: .*pyworkers-server", output)


def check(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
