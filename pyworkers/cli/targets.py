"""Targets: the Redis servers that a command reads or changes: all of the configuration, or one.

Used by all commands. With one Redis, nothing shows that there could be several: no column, no name, no member
of the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import click

from pyworkers.cli import NOT_THERE
from pyworkers.cli.output.records import print_json, print_list
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig
from pyworkers.config.stores import DEFAULT
from pyworkers.errors import RedisUnavailableError

if TYPE_CHECKING:
    # `pyworkers run` imports this module, and the server never imports `api`.
    from pyworkers.api.columns import Column
    from pyworkers.cli.output.listing import Form

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_AWAY = "pyworkers.away"


class Target(NamedTuple):
    """One Redis of a command. ``label``: its name; empty if the configuration has no other."""

    label: str
    config: RedisConfig

    def as_dict(self) -> dict[str, str]:
        """The member of the JSON of something that this Redis has."""
        return {"redis": self.label} if self.label else {}


@dataclass(frozen=True, slots=True)
class Located(Generic[R_co]):
    """Something, and the name of the Redis that has it."""

    redis: str
    item: R_co


class Targets:
    """The Redis servers of a command, each opened when it is asked.

    ``open_one`` makes one ready; it raises RedisUnavailableError for an embedded server that is down.
    """

    def __init__(
        self, names: Sequence[str], open_one: Callable[[str], RedisConfig], *, several: bool
    ) -> None:
        self._names = names
        self._open = open_one
        self.several = several

    def __iter__(self) -> Iterator[Target]:
        """Those that can be opened; the others are reported, as by ``reporting``."""
        for name in self._names:
            found = self._reporting(name, partial(self._target, name))
            if found is not None:
                yield found

    def gather(self, read: Callable[[RedisConfig], R]) -> list[Located[R]]:
        """What each of them has. One that is away is reported, and the others are shown.

        The command then ends with the exit code of RedisUnavailableError (``end_with_away``). Raises that
        error if there is only one.
        """

        def located(name: str) -> Located[R]:
            return Located(name, read(self._open(name)))

        each = (self._reporting(name, partial(located, name)) for name in self._names)
        return [one for one in each if one is not None]

    def first(self, *finds: Callable[[RedisConfig], R | None]) -> tuple[Target, R] | None:
        """The first thing that is found, in turn; None if none of them has it.

        All are asked by the first of ``finds``, then by the next one, which takes longer. Raises
        RedisUnavailableError if one is away, and no other has it.
        """
        away: dict[str, RedisUnavailableError] = {}
        for find in finds:
            for name in (name for name in self._names if name not in away):
                try:
                    target = self._target(name)
                    found = find(target.config)
                except RedisUnavailableError as error:
                    away[name] = self._named(name, error)
                    continue
                if found is not None:
                    return target, found
        if away:
            raise next(iter(away.values()))
        return None

    def rows(self, target: Target, items: Iterable[R]) -> Iterator[Located[R]]:
        """What one of them has, as it is read; it is reported if it is away."""
        try:
            for item in items:
                yield Located(target.label, item)
        except RedisUnavailableError as error:
            self._report(target.label, error)

    def show(self, form: Form, columns: Sequence[Column[R]], found: Iterable[Located[R]]) -> None:
        """Print the records as a table, with a column ``redis`` if there are several."""
        if self.several:
            form.show(located(columns), found)
        else:
            form.show(columns, (one.item for one in found))

    def as_dicts(
        self, found: Iterable[Located[R]], as_dict: Callable[[R], Mapping[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """The records for JSON, with a member ``redis`` if there are several."""
        for one in found:
            yield {**({"redis": one.redis} if self.several else {}), **as_dict(one.item)}

    def print_json(self, found: Iterable[Located[R]], as_dict: Callable[[R], Mapping[str, Any]]) -> None:
        """Print the one record of each: an object, or an array if there are several."""
        records = self.as_dicts(found, as_dict)
        print_list(records) if self.several else print_json(next(records))

    @property
    def answered(self) -> bool:
        """True unless all of them are away."""
        return any(name not in _away() for name in self._names)

    def _target(self, name: str) -> Target:
        return Target(name if self.several else "", self._open(name))

    def _named(self, name: str, error: RedisUnavailableError) -> RedisUnavailableError:
        """The error, with the name of the Redis that is away."""
        if not self.several:
            return error
        hint = error.hint
        if name != DEFAULT and error.code in NOT_THERE:
            hint = hint or f"Start it, or change url in [redis.{name}] of the configuration."
        message = f"the Redis {name} is unreachable: {error.message}"
        return RedisUnavailableError(message, hint=hint, code=error.code)

    def _reporting(self, name: str, act: Callable[[], R]) -> R | None:
        if name in _away():
            return None
        try:
            return act()
        except RedisUnavailableError as error:
            self._report(name, error)
            return None

    def _report(self, name: str, error: RedisUnavailableError) -> None:
        """Print the error, so that the others are shown; raises it if there are no others."""
        if len(self._names) == 1:
            raise self._named(name, error) from error
        click.echo(printable(f"Error: {self._named(name, error).message}"), err=True)
        _away().add(name)


def found_in(located: tuple[Target, R] | None, words: str) -> tuple[Target, R]:
    """What was found; if nothing was, print these words, and end the command with exit code 1."""
    if located is None:
        click.echo(words, err=True)
        click.get_current_context().exit(1)
    return located


def each(found: Iterable[Located[Iterable[R]]]) -> list[Located[R]]:
    """The single things in lists of several servers."""
    return [Located(one.redis, item) for one in found for item in one.item]


def end_with_away() -> None:
    """End the command if a Redis was reported to be away; its exit code says so."""
    if _away():
        click.get_current_context().exit(RedisUnavailableError.exit_code)


def _away() -> set[str]:
    """The servers that this command has reported to be away."""
    found: set[str] = click.get_current_context().meta.setdefault(_AWAY, set())
    return found


def located(columns: Sequence[Column[R]]) -> list[Column[Located[R]]]:
    """The columns of a table of what several have: the name of the Redis, and these."""
    from pyworkers.api.columns import REDIS

    def value(column: Column[R], one: Located[R], now: float) -> Any:
        return column.of(one.item, now)

    moved: list[Any] = [replace(column, value=partial(value, column)) for column in columns]
    return [REDIS, *moved]
