"""Before a command changes much: ask; while it works: show how far it is. Both on stderr, for a person."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

import click

T = TypeVar("T")


def check_that_somebody_can_be_asked() -> None:
    """Raise a usage error where nobody sits at the terminal: a script must say ``--yes``."""
    if not sys.stdin.isatty():
        raise click.UsageError(
            "This asks before it acts, and here is no terminal: add --yes, or try --dry-run."
        )


def ask(question: str) -> None:
    """Go on only after a yes; raises click.Abort otherwise."""
    click.confirm(question, abort=True, err=True)


def progressing(items: Iterable[T], length: int, label: str) -> Iterator[T]:
    """The items, with a bar on stderr if that is a terminal. ``length`` is about how many there are."""
    with click.progressbar(
        items, length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        yield from bar
