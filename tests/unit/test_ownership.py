"""An object owns its state: no attribute of another object is assigned, checked from the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.independent
PACKAGE = Path(__file__).parents[2] / "pyworkers"
# Objects of other packages that have no method for it: their attributes are their interface.
FOREIGN = {
    "cli/__init__.py": {"command.commands", "command.help"},
    "integrations/sqlalchemy.py": {"connection._commit_impl", "connection._commit_twophase_impl"},
    "store/transport/connections.py": {
        "client.auto_close_connection_pool",
        "client.response_callbacks",
        "finalizer.atexit",
    },
    "store/transport/tls.py": {
        "context.check_hostname", "context.minimum_version", "context.verify_flags", "context.verify_mode",
    },
    "store/transport/wire.py": {"connection._reader", "connection._writer"},
    "worker/output.py": {"text.mode"},
    "worker/trackers.py": {"process.returncode", "starter.spawnv_passfds"},
    "web/application.py": {
        "application.state.reader",
        "application.state.resources",
        "application.state.sites",
        "application.state.users",
        "application.state.waits",
    },
    "web/security/oidc.py": {"connection._create_connection", "self._timer.daemon"},
    "worker/hygiene.py": {"os.environ", "sys.stdin", "sys.stdout", "sys.stderr"},
    "worker/importing.py": {"link.stack"},
}  # fmt: skip


def assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Every attribute of another object than ``self`` that is assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not own:
                yield node


def test_no_attribute_is_assigned_from_outside() -> None:
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in assigned(ast.parse(path.read_text())):
            found.setdefault(str(path.relative_to(PACKAGE)), set()).add(ast.unparse(node))
    assert found == FOREIGN
