"""Sources: the calls that the code of pyworkers contains, from its syntax trees.

Used by the pages of errors and log events. Reads files and imports nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of each file of the package, by its path below ``pyworkers/``."""
    package = ROOT / "pyworkers"
    return {
        str(path.relative_to(package)): ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))
    }


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call, with the file that it is in."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield path, node


def template(node: ast.expr | None) -> str:
    """A text as the code builds it, with ``…`` for each part that is known at run time alone."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(value) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    if isinstance(node, ast.IfExp):
        return f"{template(node.body)} / {template(node.orelse)}".strip(" /")
    return "…" if node is not None else ""
