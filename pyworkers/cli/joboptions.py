"""The options of a job on a command line, made from their table (``protocol/options.py``).

Run by people and scripts. Reads the words; every producer has the same checks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import click

from pyworkers.cli.params import parse_duration, parse_json, parse_retry, reads
from pyworkers.protocol.options import OPTIONS, JobOption

# The names that differ: one word for each tag, and --wait is for the result.
_NAMES = {"tags": "--tag", "wait": "--wait-for-room"}


def job_options(*, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of a job; the command gets those that were given as ``options``, by their names."""
    names = [name for name in OPTIONS if name not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(*args: Any, **others: Any) -> None:
            given = {name: others.pop(f"job_{name}") for name in names}
            options = {name: _plain(value) for name, value in given.items() if value not in (None, ())}
            command(*args, options=options, **others)

        decorated: Callable[..., None] = with_options
        for name in reversed(names):
            decorated = _option(name, OPTIONS[name])(decorated)
        return decorated

    return decorate


def _option(name: str, option: JobOption) -> Callable[[Callable[..., None]], Callable[..., None]]:
    word = _NAMES.get(name, f"--{name.replace('_', '-')}")
    declared = f"{word}/--no-{word[2:]}" if option.kind == "flag" else word
    needs = f" Needs --{option.needs.replace('_', '-')}." if option.needs else ""
    help_ = option.meaning.replace("``", "") + needs
    return click.option(declared, f"job_{name}", default=None, help=help_, **_form(option))


def _form(option: JobOption) -> Mapping[str, Any]:
    """How click reads such a value, and shows it in the help."""
    match option.kind:
        case "flag":
            return {}
        case "flag or count":
            return {"metavar": "true|false|N", "callback": reads(parse_retry)}
        case "count":
            return {"metavar": "N", "type": click.IntRange(min=0)}
        case "seconds":
            return {"metavar": "DURATION", "callback": reads(parse_duration)}
        case "text":
            return {"metavar": "TEXT"}
        case "texts":
            return {"metavar": "TEXT", "multiple": True}
        case "choice":
            return {"type": click.Choice(option.choices)}
        case "object" | "value":
            return {"metavar": "JSON", "callback": reads(parse_json)}


def _plain(value: Any) -> Any:
    """As a program writes it: whole seconds are an integer, and several words a list."""
    if isinstance(value, float) and value == int(value):
        return int(value)
    return list(value) if isinstance(value, tuple) else value
