"""The project of a test, and the databases."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.conftest import missing
from tests.helpers.django_project import DjangoProject
from tests.helpers.postgres import connected, postgres_binary, running_postgres

Project: TypeAlias = Callable[..., DjangoProject]
# Each command in its own process, forked from one that has imported the most, but read no settings.
_MANAGE_EACH = """
import json, os, sys, tempfile
from django.core.management import execute_from_command_line
import django.views.debug, pyworkers.cli, pyworkers.integrations.django
found = []
for change, words in json.loads(sys.argv[1]):
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

ADMIN = """
_CONTRIB = ["admin", "auth", "contenttypes", "sessions", "messages"]
INSTALLED_APPS += [f"django.contrib.{name}" for name in _CONTRIB]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
ROOT_URLCONF = "project.urls"
ALLOWED_HOSTS = ["*"]
# The usual one takes a third of a second for a password.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
"""
PEOPLE = """
from django.contrib.auth.models import Permission, User
User.objects.create_superuser("root", password="secret")
operator = User.objects.create_user("operator", password="secret", is_staff=True)
operator.user_permissions.set(Permission.objects.filter(codename="operate_queue"))
staff = User.objects.create_user("staff", password="secret", is_staff=True)
staff.user_permissions.set(Permission.objects.filter(codename="view_queue"))
User.objects.create_user("clerk", password="secret", is_staff=True)
User.objects.create_user("customer", password="secret")
print("null")
"""


def manage_each(site: DjangoProject, commands: Sequence[tuple[str, str]]) -> list[tuple[int, str]]:
    """The exit code and the output of commands of ``manage.py``, each after a change of the settings."""
    asked = json.dumps([(change, words.split()) for change, words in commands])
    found = site.python("-c", _MANAGE_EACH, asked).splitlines()[-1]
    return [(code, output) for code, output in json.loads(found)]


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
def _admin_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of SQLite with the tables of the admin, and people."""
    site = DjangoProject(tmp_path_factory.mktemp("admin"), "redis://127.0.0.1:1/0", "", settings=ADMIN)
    site.write("project/urls.py", "urlpatterns = []")
    site.manage("migrate")
    site.run(PEOPLE)
    return site.folder / "db"


@pytest.fixture
def admin_project(project: Project, _admin_database: Path) -> Project:
    """As ``project``, with ``ADMIN`` in its settings, and a copy of that database."""

    def make(settings: str = "", **more: Any) -> DjangoProject:
        site = project(settings=ADMIN + settings, **more)
        shutil.copy(_admin_database, site.folder / "db")
        return site

    return make


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
