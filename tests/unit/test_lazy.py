"""Packages whose names load at their first use: what they promise to programs, editors and type checkers."""

from __future__ import annotations

import ast
import inspect
import pickle
import subprocess
import sys
from types import ModuleType

import pytest

import pyworkers
from pyworkers import api
from pyworkers.lazy import getter

PACKAGES = [pyworkers, api]


def declared(package: ModuleType) -> dict[str, str]:
    """The names that the type checker sees, each with its module."""
    for node in ast.parse(inspect.getsource(package)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            froms = [one for one in node.body if isinstance(one, ast.ImportFrom)]
            return {alias.name: str(one.module) for one in froms for alias in one.names}
    raise AssertionError(f"no names in {package}")


@pytest.mark.parametrize("package", PACKAGES)
def test_each_name_is_the_one_that_the_type_checker_sees(package: ModuleType) -> None:
    names = declared(package)
    assert sorted(names) == sorted(set(package.__all__) - {"__version__"})
    for name, home in names.items():
        __import__(home)
        assert getattr(package, name) is getattr(sys.modules[home], name)
    assert dir(package) == sorted(package.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_star_import_takes_all_names(package: ModuleType) -> None:
    found: dict[str, object] = {}
    exec(f"from {package.__name__} import *", found)
    assert found.keys() - {"__builtins__"} == set(package.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_is_pickled_as_that_of_its_module(package: ModuleType) -> None:
    for name in declared(package):
        found = getattr(package, name)
        if isinstance(found, type):
            assert pickle.loads(pickle.dumps(found)) is found


def test_another_name_is_an_error_with_the_package() -> None:
    with pytest.raises(AttributeError, match=r"module 'pyworkers\.api' has no attribute 'Statz'"):
        _ = api.Statz  # type: ignore[attr-defined]


def test_a_name_that_its_module_lacks_is_an_error_of_that_module() -> None:
    with pytest.raises(AttributeError, match=r"module 'pyworkers\.errors' has no attribute 'Gone'"):
        getter("package", {"pyworkers.errors": ["Gone"]})("Gone")


def test_a_module_of_the_package_is_loaded_by_its_name() -> None:
    code = "import pyworkers.api; print(pyworkers.api.stats.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "pyworkers.api.stats\n"


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import pyworkers", {"pyworkers.errors", "redis"}),
        ("import pyworkers.api", {"pyworkers.api.stats", "redis"}),
        ("from pyworkers.api import Stats", {"pyworkers.api.batches", "pyworkers.api.limits"}),
        ("import pyworkers.cli.run, pyworkers.server.master, pyworkers.worker.forkserver", {"pyworkers.api"}),
        (
            "from pyworkers import Client; from pyworkers.store.store import Store; "
            "Client()._routes._wires('default')",
            {f"pyworkers.store.transport.{name}" for name in ("group", "primary", "sentinel")},
        ),
    ],
)
def test_a_name_loads_its_own_modules(code: str, absent: set[str]) -> None:
    script = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "pyworkers" in loaded
    assert absent & loaded == set()
