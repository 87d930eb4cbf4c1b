"""The reference of the options of jobs: one table for the decorators and the enqueue calls.

The types are those of the TypedDicts in the source, the rules and the meanings those of the table of options.
An option that a decorator alone takes has its meaning in the TypedDict.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from contrib.reference.sources import ROOT
from contrib.reference.tables import code, plain, table
from pyworkers.protocol.options import OPTIONS

_HEAD = """# Options of jobs

What the decorators, the enqueue calls of clients (`enqueue`, `enqueue_in`, `enqueue_at`, `enqueue_bulk`) and
`job.options(…)` take. Those of a call are used instead of the declared ones. Another name is an error that
names the nearest option. *Of* is the program that has the option, too, and reads it in a job.

"""
_FILES = ("protocol/options.py", "groups.py", "handler.py")
TAKERS = {
    "`@worker.job`": "JobOptions",
    "`@worker.process`": "HandlerOptions",
    "enqueue": "EnqueueOptions",
    "`options(…)`": "JobOverrides",
}
"""The heads of the columns, and the TypedDict that each of them takes."""


class Described(NamedTuple):
    """An option in one TypedDict."""

    type: str
    meaning: str


def page() -> str:
    """The page: a row for each option, in the order of its first declaration."""
    taken = {head: options_of(name) for head, name in TAKERS.items()}
    taken["enqueue"]["retry"] = taken["`options(…)`"]["retry"]
    names = dict.fromkeys(name for options in taken.values() for name in options)
    rows = [(code(name), *_row(name, taken)) for name in names]
    return _HEAD + table(("option", "value", "meaning", "of", *taken), rows)


def _row(name: str, taken: Mapping[str, Mapping[str, Described]]) -> Iterator[str]:
    found = next(options[name] for options in taken.values() if name in options)
    rule = OPTIONS.get(name)
    yield code(found.type) if rule is None else plain(rule.rule)
    needs = f" Needs `{rule.needs}`." if rule and rule.needs else ""
    yield plain(found.meaning.replace("``", "`")) + needs
    yield rule.origin if rule else ""
    yield from ("yes" if name in options else "" for options in taken.values())


def options_of(name: str) -> dict[str, Described]:
    """The options of a TypedDict and of its bases, as they are written."""
    found = _classes()[name]
    options: dict[str, Described] = {}
    for base in map(ast.unparse, found.bases):
        options |= options_of(base) if base != "TypedDict" else {}
    for field, text in pairwise((*found.body, ast.Pass())):
        if isinstance(field, ast.AnnAssign):
            name = ast.unparse(field.target)
            own = " ".join(ast.literal_eval(text.value).split()) if isinstance(text, ast.Expr) else ""
            meaning = own or (OPTIONS[name].meaning if name in OPTIONS else "")
            options[name] = Described(ast.unparse(field.annotation), meaning)
    return options


def _classes() -> dict[str, ast.ClassDef]:
    trees = (ast.parse((ROOT / "pyworkers" / file).read_text()) for file in _FILES)
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
