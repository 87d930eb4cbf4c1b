"""Columns: what people and programs see of a record, declared once.

The page's table and its live cells, the member of the JSON with its schema, and the column of a command are
made from the same declaration. Pure; nothing here knows HTML or a terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

from pyworkers.api.schemas import TEXT, Schema, array, maybe, record
from pyworkers.text import valid

R = TypeVar("R", contravariant=True)


class Kind(Enum):
    """What a value is. Its JSON type follows from it, and how pages and commands show it."""

    TEXT = "string"
    CODE = "code"
    """A text that is shown as code."""
    COUNT = "integer"
    NUMBER = "number"
    RATE = "rate"
    """Things a minute, with one digit in JSON."""
    SECONDS = "seconds"
    """A length of time, with three digits in JSON; 0 is shown as unknown."""
    TOOK = "took"
    """The seconds that something took."""
    MILLISECONDS = "ms"
    """A length of time, with one digit in JSON."""
    MOMENT = "moment"
    """A time in epoch seconds; 0 is unknown."""
    MEMORY = "memory"
    """A size in KiB; 0 is unknown."""
    FLAG = "boolean"
    BAR = "bar"
    """A part and the whole, drawn as a bar."""
    SHARE = "share"
    """A part and the whole, as a bar and in numbers."""
    WORDS = "words"
    """A sequence of ``Word``: never in JSON."""
    PROGRESS = "progress"
    """How far a job is; JSON has its table. A command shows the same in a text."""
    RECORD = "record"
    """A record that has its own table. A page shows it by a function (``Listing``); a command does not."""
    TEXTS = "texts"
    """Some texts: an array in JSON, shown with commas."""
    RECORDS = "records"
    """A sequence of such records; only in JSON."""
    PARTS = "parts"
    """Any value that has its own schema; only in JSON."""


_TYPES = {
    Kind.TEXT: "string",
    Kind.CODE: "string",
    Kind.COUNT: "integer",
    Kind.NUMBER: "number",
    Kind.RATE: "number",
    Kind.SECONDS: "number",
    Kind.TOOK: "number",
    Kind.MILLISECONDS: "number",
    Kind.MOMENT: "number",
    Kind.MEMORY: "integer",
    Kind.FLAG: "boolean",
}
_NUMBERS = (Kind.COUNT, Kind.NUMBER, Kind.RATE, Kind.SECONDS, Kind.TOOK, Kind.MILLISECONDS, Kind.MEMORY)
_ONLY_SHOWN = (Kind.BAR, Kind.SHARE, Kind.WORDS)
_MISSING: tuple[object, ...] = (None, "", (), [])
_DIGITS = {Kind.RATE: 1, Kind.SECONDS: 3, Kind.MILLISECONDS: 1}


@dataclass(frozen=True, slots=True)
class Word:
    """A word about a record, e.g. its state. ``tone``: ``good``, ``warn``, ``bad``, ``note``, or none.

    ``name`` follows the word; it leads to its page below ``place``. The ``usual`` word is left out where
    the absence of others says the same.
    """

    text: str
    tone: str = ""
    meaning: str = ""
    name: str = ""
    place: str = ""
    usual: bool = False


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One fact about a record. ``value`` reads it at a time (epoch seconds); by default, the attribute."""

    name: str
    """The member of the JSON."""
    kind: Kind = Kind.TEXT
    title: str = ""
    """The head of the column; empty for a fact that only JSON has."""
    _: KW_ONLY
    value: Callable[[R, float], Any] | None = None
    about: str = ""
    """The description of the member in OpenAPI."""
    schema: Schema | None = None
    """The JSON schema of PARTS."""
    table: Table[Any] | None = None
    """The table of RECORD and RECORDS."""
    only_shown: bool = False
    """True for a fact that JSON lacks."""
    nullable: bool = False
    optional: bool | Callable[[R], object] = False
    """True for a member that is missing in JSON while it is empty. Or a function that says if it is there."""
    place: str = ""
    """The pages to one of which the text leads, as ``queues``."""
    empty: str = ""
    """What is shown for an empty text, or for no value."""
    tone: Callable[[Any], str | None] | None = None
    """The tone of a value (``Word``)."""
    live: bool = False
    """True for a cell that changes while a page is open."""
    cut: int = 0
    """The place in the order in which a terminal shortens columns, from 1; 0: never."""

    @property
    def number(self) -> bool:
        """True for a value that is aligned to the right."""
        return self.kind in _NUMBERS

    def is_unknown(self, value: Any) -> bool:
        """True for a value instead of which ``empty`` is shown."""
        return value in (None, "") or (value == 0 and self.kind in (Kind.MOMENT, Kind.MEMORY))

    def of(self, row: R, now: float) -> Any:
        """The value."""
        return getattr(row, self.name) if self.value is None else self.value(row, now)


REDIS: Column[Any] = Column("redis", title="Redis")
"""The name of the Redis server that has a record, if there are several."""


class Table(Generic[R]):
    """All facts about one kind of record, in the order of the JSON. ``title``: the name of its schema;
    empty for a record that makes its own JSON.
    """

    def __init__(self, title: str, *columns: Column[R]) -> None:
        self.title = title
        self.columns = {column.name: column for column in columns}
        self._in_json = [
            column for column in columns if column.kind not in _ONLY_SHOWN and not column.only_shown
        ]

    def shown(self, *names: str) -> tuple[Column[R], ...]:
        """The columns with these names; without names, all that have a title."""
        chosen = [name for name, column in self.columns.items() if column.title]
        return tuple(self.columns[name] for name in names or chosen)

    def within(self, get: Callable[[Any], R]) -> list[Column[Any]]:
        """The columns for a larger record; ``get`` reads this one from it."""

        def value(column: Column[R], row: Any, now: float) -> Any:
            return column.of(get(row), now)

        def is_there(known: Callable[[R], object], row: Any) -> object:
            return known(get(row))

        return [
            replace(
                column,
                value=partial(value, column),
                optional=partial(is_there, column.optional) if callable(column.optional) else column.optional,
            )
            for column in self.columns.values()
        ]

    def as_dict(self, row: R, now: float = 0.0) -> dict[str, Any]:
        """The record for JSON."""
        found = {}
        for column in self._in_json:
            if callable(column.optional) and not column.optional(row):
                continue
            value = column.of(row, now)
            if column.optional is not True or value not in _MISSING:
                found[column.name] = _plain(column, value, now)
        return found

    @property
    def schema(self) -> Schema:
        """The JSON schema of ``as_dict``."""
        required, optional = (
            {column.name: _schema(column) for column in self._in_json if bool(column.optional) is is_optional}
            for is_optional in (False, True)
        )
        return record(self.title, required, optional)


def page_of(title: str, name: str, rows: Table[Any], *more: Column[Any]) -> Table[Any]:
    """A page of a listing: ``name`` has its rows, from the index ``first`` on, of ``total``."""
    return Table(
        title,
        Column("first", Kind.COUNT),
        Column("total", Kind.COUNT),
        *more,
        Column(name, Kind.RECORDS, table=rows),
    )


def _plain(column: Column[Any], value: Any, now: float) -> Any:
    """A value for JSON."""
    if value is None:
        return None
    if column.table is not None:
        table = column.table
        if column.kind is Kind.RECORDS:
            return [table.as_dict(record, now) for record in value]
        return table.as_dict(value, now)
    if column.kind in (Kind.TEXT, Kind.CODE):
        return valid(value)
    if column.kind is Kind.TEXTS:
        return list(map(valid, value))
    digits = _DIGITS.get(column.kind)
    return value if digits is None else round(value, digits)


def _schema(column: Column[Any]) -> Schema:
    about = {"description": column.about} if column.about else {}
    if column.table is not None:
        schema = column.table.schema
        return array(schema) if column.kind is Kind.RECORDS else maybe(schema) if column.nullable else schema
    if column.kind is Kind.TEXTS:
        return {**array(TEXT), **about}
    if column.schema is not None:
        return {**column.schema, **about}
    kind = _TYPES[column.kind]
    return {"type": [kind, "null"] if column.nullable else kind, **about}
