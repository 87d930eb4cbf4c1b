"""pytest: the fixtures ``jobs``, ``inline_jobs`` and ``pyworkers_server``. The package brings the plugin.

Runs in the test's process. Until a fixture is used, it imports neither redis nor the application, which
``--pyworkers-app`` or the ini option ``pyworkers_app`` names. ``-p no:pyworkers`` turns it off.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyworkers import Worker
    from pyworkers.serving import Server
    from pyworkers.testing import Fake, Inline

_OPTION = "pyworkers_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the ini option that name the application."""
    text = "The Worker that runs the jobs of the fixtures of pyworkers, e.g. tasks:worker."
    group = parser.getgroup("pyworkers")
    group.addoption("--pyworkers-app", metavar="MODULE:NAME", dest=_OPTION, help=text)
    parser.addini(_OPTION, text, default="")


@pytest.fixture
def jobs(pytestconfig: pytest.Config) -> Iterator[Fake]:
    """The jobs that the test enqueues, which are kept instead of sent to Redis.

    ``jobs.assert_enqueued(send_mail, 7)``, ``jobs.drain()`` runs them, ``jobs.travel(hours=2)`` turns the
    clock.
    """
    from pyworkers.testing import fake

    with fake(_worker(pytestconfig)) as collected:
        yield collected


@pytest.fixture
def inline_jobs(pytestconfig: pytest.Config) -> Iterator[Inline]:
    """Each job that the test enqueues runs at once; ``inline_jobs.ran`` has them."""
    from pyworkers.testing import inline

    with inline(_worker(pytestconfig)) as running:
        yield running


@pytest.fixture
def pyworkers_config() -> dict[str, Any]:
    """More configuration of ``pyworkers_server``, with the keys of a file; to be overridden."""
    return {}


@pytest.fixture
def pyworkers_server(
    pytestconfig: pytest.Config,
    pyworkers_config: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """A server that runs the application in another process, on its own Redis (extra ``embedded``).

    What the test enqueues goes there. Running jobs may finish after the test.
    """
    from pyworkers import serve

    app = _named(pytestconfig)
    if not app:
        pytest.fail(
            "pyworkers_server needs an application: pytest --pyworkers-app tasks:worker, "
            'or pyworkers_app = "tasks:worker" in the configuration of pytest',
            pytrace=False,
        )
    url = f"embedded:{tmp_path_factory.mktemp('pyworkers')}"
    config = {**pyworkers_config, "redis": {**pyworkers_config.get("redis", {}), "url": url}}
    _make_importable(pytestconfig)
    with serve(app, config) as server, server.redirect():
        yield server


def _named(config: pytest.Config) -> str:
    """The application as ``module:attribute``; empty if there is none."""
    return str(config.getoption(_OPTION) or config.getini(_OPTION))


def _worker(config: pytest.Config) -> Worker | None:
    """The application, for jobs that a Client enqueues."""
    from pyworkers import Worker

    app = _named(config)
    if not app:
        return None
    _make_importable(config)
    found: object = resolve_name(app if ":" in app else f"{app}:worker")
    if isinstance(found, Worker):
        return found
    text = f"--pyworkers-app {app} is a {type(found).__name__}, not a Worker"
    raise pytest.fail.Exception(text, pytrace=False)


def _make_importable(config: pytest.Config) -> None:
    """Have modules in the project's folder found, as ``pyworkers run`` finds them there."""
    if str(config.rootpath) not in sys.path:
        sys.path.append(str(config.rootpath))
