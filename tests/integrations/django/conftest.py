"""The project of a test, and the databases."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.conftest import missing
from tests.helpers.django_project import DjangoProject
from tests.helpers.postgres import connected, postgres_binary, running_postgres

Project: TypeAlias = Callable[..., DjangoProject]


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
