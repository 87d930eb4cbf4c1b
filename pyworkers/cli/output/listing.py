"""Listing: what a command prints of records, from the columns that ``api`` declares.

Pure, but for ``show`` and ``print``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import methodcaller
from typing import Any, Generic, TypeVar

import click

from pyworkers.api.columns import Column, Kind, Word
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output import tables
from pyworkers.cli.output.records import json_option, print_list
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.targets import Located, Targets, each
from pyworkers.cli.text import duration, printable
from pyworkers.config.fields import RedisConfig

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Form:
    """How values are shown at one time (epoch seconds).

    A table can be read by programs: its numbers have neither units nor commas. One that is ``brief`` is for
    a glance: ``1,234`` and ``1m30s``.
    """

    now: float
    times: Times = field(default_factory=Times)
    brief: bool = False
    longest: int = 0
    """The characters of a text that are shown; 0: all."""

    def show(self, columns: Sequence[Column[R]], records: Iterable[R]) -> None:
        """Print the records as a table."""
        tables.show(self.heads(columns), (self.row(columns, record) for record in records))

    def heads(self, columns: Sequence[Column[R]]) -> list[tables.TableColumn]:
        """The heads of the columns."""
        return [tables.TableColumn(self._title(column), column.cut, column.number) for column in columns]

    def row(self, columns: Sequence[Column[R]], record: R) -> list[str]:
        """The texts of one row."""
        return [self._text(column, column.of(record, self.now)) for column in columns]

    def facts(self, columns: Sequence[Column[R]], record: R) -> Iterator[str]:
        """A line for each fact that is known of a record."""
        widest = max(len(self._title(column)) for column in columns)
        for column in columns:
            value = column.of(record, self.now)
            if not column.is_unknown(value):
                is_moment = column.kind is Kind.MOMENT
                text = self.times.full(value, self.now) if is_moment else self._text(column, value)
                yield f"{self._title(column):<{widest}}  {text}"

    def _title(self, column: Column[R]) -> str:
        return f"{column.title.lower()}{_UNITS.get(column.kind, '') if not self.brief else ''}"

    def _text(self, column: Column[R], value: Any) -> str:
        kind = column.kind
        if column.is_unknown(value):
            return column.empty
        if kind is Kind.MOMENT:
            return self.times.cell(value, self.now)
        if kind is Kind.SECONDS and self.brief:
            return duration(value) if value else ""
        if kind is Kind.WORDS:
            return _words(value)
        if kind is Kind.MEMORY:
            return f"{value / 1024:.0f} MB"
        if kind is Kind.TEXTS:
            value = ", ".join(value)
        if not column.number:
            return printable(value if not 0 < self.longest < len(value) else f"{value[: self.longest]}…")
        return format(value, "," if self.brief and kind is Kind.COUNT else _FORMS[kind])


@dataclass(frozen=True, slots=True)
class Records(Generic[R]):
    """How a command prints a list: the ``columns`` of its table, or ``none`` if there are no records."""

    columns: Sequence[Column[R]]
    none: str
    as_dict: Callable[[R], Mapping[str, Any]] = methodcaller("as_dict")
    """A record for JSON."""

    def command(
        self,
        name: str,
        read: Callable[[RedisConfig], Iterable[R]],
        text: str,
        *,
        order: Callable[[R], Any] | None = None,
        has_times: bool = True,
    ) -> click.Command:
        """The command that prints the records of all Redis servers; with several, sorted by ``order``.

        ``text`` is its help. ``has_times``: it has ``--utc``.
        """

        def listing(source: ConfigOptions, as_json: bool, times: Times | None = None) -> None:
            targets = source.targets()
            found = each(targets.gather(lambda redis: list(read(redis))))
            if order is not None and targets.several:
                found.sort(key=lambda one: order(one.item))
            self.print(targets, found, as_json, Form(time.time(), times or Times()))

        options = redis_options(listing)
        options = json_option(utc_option(options) if has_times else options)
        return click.command(name, help=text)(options)

    def print(self, targets: Targets, found: Iterable[Located[R]], as_json: bool, form: Form) -> None:
        """Print the records of all Redis servers, each as it is read: there may be millions."""
        rows = iter(found)
        if as_json:
            print_list(targets.as_dicts(rows, self.as_dict))
        elif (first := next(rows, None)) is not None:
            targets.show(form, self.columns, chain([first], rows))
        elif targets.answered:
            click.echo(self.none)


_FORMS = {
    Kind.COUNT: "d",
    Kind.NUMBER: "g",
    Kind.RATE: ".1f",
    Kind.SECONDS: ".1f",
    Kind.TOOK: ".1f",
    Kind.MILLISECONDS: ".0f",
}
_UNITS = {Kind.SECONDS: " (s)", Kind.TOOK: " (s)", Kind.MILLISECONDS: " (ms)"}


def _words(found: Sequence[Word]) -> str:
    return ", ".join(printable(f"{word.text} {word.name}".strip()) for word in found if not word.usual)
