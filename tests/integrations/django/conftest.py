"""The project of a test, and the databases."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.conftest import missing
from tests.helpers.django_project import DjangoProject
from tests.helpers.postgres import connected, postgres_binary, running_postgres
from tests.helpers.support import PATIENCE_S

Project: TypeAlias = Callable[..., DjangoProject]
# Each command in a process of its own, forked from one that has imported the most, but read no settings.
_MANAGE_EACH = """
import json, os, sys, tempfile
from django.core.management import execute_from_command_line
import django.views.debug, pyworkers.cli, pyworkers.integrations.django
found = []
for change, words in json.loads(sys.stdin.read()):
    with tempfile.TemporaryFile("w+") as output:
        if not (pid := os.fork()):
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
            from project import settings
            exec(change, vars(settings))
            sys.argv = ["manage.py", *words]
            sys.exit(execute_from_command_line(sys.argv))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        output.seek(0)
        found.append((code, output.read()))
print(json.dumps(found))
"""


def manage_each(site: DjangoProject, commands: Sequence[tuple[str, str]]) -> list[tuple[int, str]]:
    """The exit code and the output of commands of ``manage.py``, each after a change of the settings."""
    done = subprocess.run(
        [sys.executable, "-c", _MANAGE_EACH],
        cwd=site.folder,
        env=site.environment(),
        input=json.dumps([(change, words.split()) for change, words in commands]),
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return [(code, output) for code, output in json.loads(done.stdout)]


@pytest.fixture
def project(tmp_path: Path, one_redis_url: str, namespace: str) -> Iterator[Project]:
    """Makes a ``DjangoProject`` in the folder of this test; its server is killed after the test."""
    with ExitStack() as stack:

        def make(*options: str, **more: Any) -> DjangoProject:
            found = DjangoProject(tmp_path, one_redis_url, namespace, *options, **more)
            stack.callback(found.kill)
            return found

        yield make


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The folder of the socket of a PostgreSQL server."""
    binary = postgres_binary() or missing("PostgreSQL is not installed")
    with running_postgres(binary) as folder:
        yield folder


@pytest.fixture
def postgres(postgres_server: str) -> dict[str, str]:
    """An empty database of PostgreSQL, as Django's DATABASES names it."""
    name = f"t{uuid.uuid4().hex[:12]}"
    with connected(postgres_server) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return {
        "ENGINE": "django.db.backends.postgresql", "NAME": name, "USER": "postgres", "HOST": postgres_server,
    }  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Each kind of database in turn."""
    if request.param == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db")}
    found: dict[str, str] = request.getfixturevalue("postgres")
    return found
