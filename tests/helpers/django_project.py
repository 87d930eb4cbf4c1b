"""A Django project for tests, written on the spot: its ``manage.py`` runs in other processes."""

from __future__ import annotations

import json
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from tests.helpers import warm
from tests.helpers.server_process import Process, ServerProcess
from tests.helpers.support import PATIENCE_S

HEADER = """
import json, os, time
from pathlib import Path
from pyworkers.integrations.django import worker
base = Path(__file__).parent.parent
def note(*words):
    with (base / "ledger").open("a") as file:
        file.write(json.dumps([os.getpid(), *words]) + "\\n")
def wait_for_file(name):
    while not (base / name).exists():
        time.sleep(0.005)
"""
# Django 6 has the tasks of django_tasks.
FRAMEWORK = """
try:
    from django.tasks import task, task_backends, exceptions, signals
except ImportError:
    from django_tasks import task, task_backends, exceptions, signals
from pyworkers.integrations.django import job_options
"""
MANAGE = """
import os, sys
from django.core.management import execute_from_command_line
os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
execute_from_command_line(sys.argv)
"""
SETTINGS = """
SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["pyworkers.integrations.django", *{apps!r}]
DATABASES = {{"default": {database!r}}}
PYWORKERS = {pyworkers!r}
"""


class DjangoProject(ServerProcess):
    """A project in ``folder``, with one app ``shop``, and its ``manage.py pyworkers run``.

    Its jobs write into the ledger with ``note(...)``.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        namespace: str,
        *options: str,
        apps: Sequence[str] = ("shop",),
        settings: str = "",
        pyworkers: Mapping[str, Any] | None = None,
        database: Mapping[str, Any] | None = None,
        **environment: str,
    ) -> None:
        super().__init__(folder, url, namespace, **environment)
        self._manage = str(folder / "manage.py")
        self._arguments = [self._manage, "pyworkers", "run", "--log-format", "json", "--log-level", "debug"]
        self._arguments += options
        if "REDIS_URL" not in environment:
            self._environment.pop("REDIS_URL", None)
        given = {"redis": {"url": url, "namespace": namespace}, **(pyworkers or {})}
        for app in apps:
            self.write(f"{app}/__init__.py", "")
        self.write("project/__init__.py", "")
        found = database or {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "db")}
        text = SETTINGS.format(apps=list(apps), database=found, pyworkers=given)
        self.write("project/settings.py", text + textwrap.dedent(settings))
        self.write("manage.py", MANAGE)

    def write(self, name: str, code: str) -> None:
        """Write a file of the project."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code))
        # Compiled code counts as current if the source has the same size and a date in the same second.
        Path(cache_from_source(path)).unlink(missing_ok=True)

    def write_tasks(self, code: str, app: str = "shop") -> None:
        """Write the ``tasks.py`` of an app."""
        self.write(f"{app}/tasks.py", HEADER + textwrap.dedent(code))

    def start_with_log(self, log: int, *, app: str = "") -> None:
        """Start it in another directory than ``manage.py`` is in."""
        self.process = warm.start(
            self._arguments,
            cwd=Path("/"),
            env=self._environment,
            stdout=log,
            stderr=log,
            imports=warm.DJANGO,
        )

    def manage(self, *words: str, code: int = 0) -> str:
        """What ``manage.py`` prints on both streams; ``code`` is its exit code."""
        return self.python(self._manage, *words, code=code)

    def run(self, code: str) -> Any:
        """What a program of the project prints as JSON, with Django set up."""
        program = f"import django, json; django.setup()\n{textwrap.dedent(code)}"
        return json.loads(self.python("-c", program).splitlines()[-1])

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of the programs of the project."""
        return {**self._environment, "DJANGO_SETTINGS_MODULE": "project.settings", "COLUMNS": "120", **more}

    def python(self, *arguments: str, code: int = 0) -> str:
        """What ``python`` prints on both streams with these arguments; ``code`` is its exit code."""
        with tempfile.TemporaryFile("w+") as output:
            found = self.start_python(output.fileno(), *arguments).wait(PATIENCE_S)
            output.seek(0)
            text = output.read()
        assert found == code, text
        return text

    def start_python(self, output: int, *arguments: str) -> Process:
        """Start ``python`` with these arguments, and this descriptor as both of its streams."""
        return warm.start(
            arguments,
            cwd=self.folder,
            env=self.environment(),
            stdout=output,
            stderr=output,
            imports=warm.DJANGO,
        )
