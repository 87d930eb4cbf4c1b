"""The example of a Django project, run as a user does, with SQLite and with PostgreSQL."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import warm
from tests.helpers.support import PATIENCE_S, ROOT, free_port, wait_for
from tests.integrations.programs import fetch

MANAGE = str(ROOT / "contrib/examples/django/manage.py")


def with_path() -> dict[str, str]:
    """The environment with the path that ``warm`` has; with another one it starts an interpreter."""
    return os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def environment(
    database: dict[str, str],
    tmp_path: Path,
    one_redis_url: str,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What decides which servers the example uses."""
    monkeypatch.setenv("REDIS_URL", one_redis_url)
    monkeypatch.setenv("PYWORKERS_REDIS__NAMESPACE", namespace)
    monkeypatch.setenv("SHOP_DB", database["NAME"])
    for variable, key in {"PGHOST": "HOST", "PGDATABASE": "NAME", "PGUSER": "USER"}.items():
        if "HOST" in database:
            monkeypatch.setenv(variable, database[key])


def manage(*words: str) -> str:
    done = warm.run([MANAGE, *words], cwd=ROOT, env=with_path(), imports=warm.DJANGO)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def running(log: Path, *words: str) -> Iterator[None]:
    """A command of the project that runs until the end of the block."""
    with log.open("wb") as output:
        out = output.fileno()
        process = warm.start(
            [MANAGE, *words], cwd=ROOT, env=with_path(), stdout=out, stderr=out, imports=warm.DJANGO
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


@pytest.mark.usefixtures("environment")
def test_an_order_is_confirmed_by_a_job(tmp_path: Path) -> None:
    manage("migrate")
    port = free_port()
    site = f"http://127.0.0.1:{port}/orders"
    log = tmp_path / "server.log"
    with (
        running(tmp_path / "web.log", "runserver", "--noreload", str(port)),
        running(log, "pyworkers", "run"),
    ):
        wait_for(lambda: fetch(site))
        created = fetch(site, b"customer=ann")
        assert fetch(site, b"customer=") == {"code": 400}
        order = wait_for(lambda: confirmed(f"{site}/{created['order']}"))
    assert order["customer"] == "ann"
    assert log.read_text().count('"job.done"') == 1
    assert created["jid"] in log.read_text()


def confirmed(url: str) -> Mapping[str, Any] | None:
    order: Mapping[str, Any] = fetch(url)
    return order if order["status"] == "confirmed" else None


@pytest.mark.usefixtures("environment")
def test_its_tests_pass() -> None:
    assert "Ran 2 tests" in manage("test", "orders")


def test_the_glue_is_three_lines() -> None:
    """Beside imports, which every use of a package needs: the app, the setting, and a decorator a job."""
    project = ROOT / "contrib/examples/django"
    settings = (project / "project/settings.py").read_text()
    tasks = (project / "orders/tasks.py").read_text()
    assert settings.count('"pyworkers.integrations.django"') == 1
    assert settings.count("PYWORKERS = ") == 1
    assert tasks.count("@worker.job") == tasks.count("\ndef ")
    assert "pyworkers" not in (project / "project/urls.py").read_text()
