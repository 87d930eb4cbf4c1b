"""JSON for programs: what every command prints with ``--json``, in one of three shapes.

Run by the commands. A command that lists prints an array of objects, one about a single thing an object, and
one that changes things an object with ``action``, ``done`` (the number of things that it changed) and their
names. Times are epoch seconds. Errors are text on stderr, and the exit codes are the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
"""Adds ``--json``; the command gets ``as_json``."""


def print_json(value: Mapping[str, Any]) -> None:
    """Print one object."""
    click.echo(json.dumps(value))


def print_list(items: Iterable[Mapping[str, Any]]) -> None:
    """Print an array item by item: there may be millions."""
    click.echo("[", nl=False)
    for number, item in enumerate(items):
        click.echo((",\n " if number else "") + json.dumps(item), nl=False)
    click.echo("]")


def print_action(action: str, done: int, **facts: Any) -> None:
    """Print what a command has changed, and how many things."""
    print_json({"action": action, "done": done, **facts})
