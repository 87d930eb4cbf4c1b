"""``manage.py pyworkers``: a server of a Django project, and the other commands."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from tests.helpers.support import PATIENCE_S, wait_for
from tests.integrations.django.conftest import Project, manage_each

TASKS = """
@worker.job
def notify(text):
    note(__name__, text)
"""


def test_jobs_of_all_apps_run_although_two_have_one_name(project: Project) -> None:
    site = project(apps=["shop", "blog"])
    for app in ("shop", "blog"):
        site.write_tasks(TASKS, app)
    names = site.run(
        """
        from blog.tasks import notify as of_blog
        from shop.tasks import notify as of_shop
        of_shop.enqueue("first"), of_blog.enqueue("second")
        print(json.dumps([of_shop.name, of_blog.name]))
        """
    )
    assert names == ["shop.notify", "blog.notify"]
    site.start()
    assert sorted(words for _, *words in site.wait_for_notes(2)) == [
        ["blog.tasks", "second"],
        ["shop.tasks", "first"],
    ]
    assert site.stop() == 0


def test_a_reload_imports_the_new_code(project: Project) -> None:
    site = project()
    site.write_tasks(TASKS)
    site.start()
    site.write_tasks(TASKS.replace("text)", "'new', text)", 2).replace("def notify('new', ", "def notify("))
    before = site.tree()
    site.signal(signal.SIGHUP)
    site.wait_for_event("reload.done")
    # An old worker that is idle may take one more job before it leaves.
    wait_for(lambda: not before & site.tree(), message="the old generation has ended")
    site.run("from shop.tasks import notify; print(json.dumps(notify.enqueue('x')))")
    assert site.wait_for_notes(1)[0][1:] == ["shop.tasks", "new", "x"]


def test_a_reload_reads_the_settings_again(project: Project) -> None:
    site = project()
    site.write_tasks(TASKS)
    site.start()
    settings = site.folder / "project/settings.py"
    before = settings.read_text()
    site.write("project/settings.py", before + "\nPYWORKERS['queues'] = {'default': {'concurrency': 9}}")
    site.signal(signal.SIGHUP)
    assert site.wait_for_event("reload.done")["queues"] == {"default": 9}
    for change, expected in (
        ("PYWORKERS['redsi'] = 1", "did you mean redis?"),
        ("1 / 0", "ZeroDivisionError"),
    ):
        site.clear_log()
        site.write("project/settings.py", f"{before}\n{change}")
        site.signal(signal.SIGHUP)
        assert expected in str(site.wait_for_event("reload.failed"))


def test_the_prefix_of_a_job_is_the_label_of_its_app(project: Project) -> None:
    site = project(apps=["shop", "shop.returns"])
    site.write(
        "shop/apps.py", "from django.apps import AppConfig\nclass C(AppConfig): name, label = 'shop', 's'"
    )
    site.write_tasks(TASKS)
    site.write_tasks(TASKS, "shop/returns")
    site.write("jobs.py", "from pyworkers.integrations.django import worker\n@worker.job\ndef work(): ...")
    names = site.run(
        """
        import shop.tasks, shop.returns.tasks, jobs
        from pyworkers.integrations.django import worker
        @worker.job(name="Own")
        def named(): ...
        found = shop.tasks.notify, shop.returns.tasks.notify, jobs.work, named
        print(json.dumps([job.name for job in found]))
        """
    )
    assert names == ["s.notify", "returns.notify", "work", "Own"]


def test_jobs_may_be_declared_before_the_apps_are_ready(project: Project) -> None:
    site = project()
    site.write(
        "shop/apps.py", "from django.apps import AppConfig\nclass C(AppConfig): name, label = 'shop', 's'"
    )
    site.write_tasks(TASKS)
    site.write("shop/__init__.py", "from shop import tasks")
    assert site.run("from shop.tasks import notify; print(json.dumps(notify.name))") == "s.notify"


def test_an_error_in_tasks_is_shown_with_file_and_line(project: Project) -> None:
    site = project()
    site.write_tasks("worker.jobb()")
    shown = site.manage("pyworkers", "check", code=3)
    assert f'{site.folder}/shop/tasks.py", line' in shown
    assert "worker.jobb()" in shown
    assert "AttributeError" in shown


def test_the_commands_use_the_settings(project: Project) -> None:
    site = project(pyworkers={"queues": {"default": {"concurrency": 7}}, "cron": ()})
    site.write_tasks(TASKS)
    site.run("from shop.tasks import notify; print(json.dumps(notify.enqueue('x')))")
    assert "shop.notify" in site.manage("pyworkers", "jobs", "default")
    shown = site.manage("pyworkers", "config", "show")
    assert 'app = "pyworkers.integrations.django:worker"' in shown
    assert "concurrency = 7" in shown
    assert site.manage("pyworkers", "config", "check") == "ok: PYWORKERS in project.settings\n"
    # The Redis of the tests keeps nothing on disk.
    assert "queues: default" in site.manage("pyworkers", "check", code=1)
    text = site.run(
        """
        import io
        from contextlib import redirect_stdout
        from django.core.management import call_command
        with redirect_stdout(io.StringIO()) as out:
            call_command("pyworkers", "queues")
        print(json.dumps(out.getvalue()))
        """
    )
    assert "default" in text


def test_the_example_of_a_command_is_that_of_a_project(project: Project) -> None:
    examples = {
        "check": "", "config show": " --chain", "stats": " --history 7", "limits reset": " stripe",
    }  # fmt: skip
    found = manage_each(project(), [("", f"pyworkers {command} --help") for command in examples])
    for (command, example), (code, shown) in zip(examples.items(), found, strict=True):
        assert code == 0, (command, shown)
        assert f"Example: python manage.py pyworkers {command}{example}\n" in shown


def test_the_help_of_a_command_lists_no_file(project: Project) -> None:
    commands = ("run", "stats", "cron", "cron list", "config show")
    for code, shown in manage_each(project(), [("", f"pyworkers {command} --help") for command in commands]):
        assert (code, "--url URL" in shown, "--config" in shown) == (0, True, False), shown


def test_a_module_that_is_missing_is_searched_in_the_folder_of_the_project(project: Project) -> None:
    site = project()
    site.write_tasks("import not_installed\n")
    output = site.manage("pyworkers", "check", code=3)
    *folders, packages = re.split(", | and the ", output.partition("; searched: ")[2].splitlines()[0])
    assert str(site.folder) in folders
    assert not [folder for folder in folders if "python3" in folder]
    assert packages.startswith("packages of ")


@pytest.mark.parametrize("words", [("pyworkers", "--help"), ("help", "pyworkers"), ("pyworkers",)])
def test_the_help_names_the_command(project: Project, words: tuple[str, ...]) -> None:
    shown = project().manage(*words, code=2 if words == ("pyworkers",) else 0)
    assert shown.startswith("Usage: manage.py pyworkers [OPTIONS] COMMAND")
    assert "PYWORKERS in the settings" in shown
    assert "run " in shown


def test_a_file_of_pyworkers_is_refused(project: Project) -> None:
    shown = project().manage("pyworkers", "stats", "--config", "workers.toml", code=2)
    assert "the configuration of this project is in its settings" in shown


def test_other_settings_are_chosen_as_in_every_command(project: Project) -> None:
    site = project()
    site.write("project/other.py", "from project.settings import *\nPYWORKERS['server'] = {'lease': 77}")
    shown = site.manage("pyworkers", "config", "show", "--settings", "project.other")
    # MANAGE sets the variable itself; --settings wins.
    assert "lease = 77.0" in shown


def test_the_plain_command_serves_a_project_too(project: Project) -> None:
    site = project()
    site.write_tasks(TASKS)
    done = subprocess.run(
        [sys.executable, "-m", "pyworkers", "check", "--app", "pyworkers.integrations.django:worker"],
        cwd=site.folder,
        env=site.environment(REDIS_URL=site.url),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "queues: default" in done.stdout, done.stderr
