"""Grouping: which queues are together in one server, by application, file and command line.

Pure; used by the master and by ``pyworkers check``, which know the queues of the application.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations

from pyworkers.config.fields import Config, GroupConfig
from pyworkers.config.groups import Only, Queues
from pyworkers.config.stores import Stores, check_on_one
from pyworkers.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Grouped:
    """The queues of one group, and its own sizes.

    ``number`` is the concurrency that the command line gives, above all others.
    """

    name: str
    queues: Queues
    own: GroupConfig
    number: int | None = None

    def limited(self, kept: Container[str]) -> Grouped:
        """The same group with these of its queues alone."""
        if isinstance(self.queues, Mapping):
            weights = {name: weight for name, weight in self.queues.items() if name in kept}
            return replace(self, queues=weights)
        return replace(self, queues=tuple(name for name in self.queues if name in kept))


def grouped(
    declared: Collection[str], groups: Mapping[str, GroupConfig], config: Config, only: Only
) -> list[Grouped]:
    """All groups of a server. ``declared`` are the queues with a handler; ``groups`` are the application's.

    A queue that is in no group is its own group. Raises ConfigError for an unknown queue, for a queue in two
    groups, and for a group on two Redis servers.
    """
    chosen = [_chosen(name, queues, number) for name, (queues, number) in only.groups.items()]
    named = [_named(name, groups, config.groups.get(name)) for name in {**groups, **config.groups}]
    known = dict.fromkeys([*declared, *_queues_of(named)])
    _check_known(config.queues, {**known, **dict.fromkeys(_queues_of(chosen))}, "[queues.{}]")
    _check_known(only.queues, known, "--queue {}", "give --queue for each queue, or --group {}")
    _check_apart(named)
    _check_apart([*chosen, *(_chosen(name, (name,), None) for name in only.queues)])
    alone = [_chosen(name, (name,), None) for name in known if name not in _queues_of(named)]
    rest = [*named, *alone]
    if only.queues or only.groups:
        rest = [_limited(group, only.queues) for group in rest]
    found = [*chosen, *(group for group in rest if group.queues)]
    _check_names(found)
    stores = Stores.of(config)
    for group in found:
        check_on_one(stores, group.name, group.queues)
    return found


def _chosen(name: str, queues: Queues, number: int | None) -> Grouped:
    return Grouped(name, queues, GroupConfig(), number)


def _named(name: str, groups: Mapping[str, GroupConfig], overrides: GroupConfig | None) -> Grouped:
    """A group of the application, with what the file overrules; or a group of the file."""
    both = groups.get(name, GroupConfig())
    if overrides is not None:
        values = {item.name: getattr(overrides, item.name) for item in fields(overrides)}
        both = replace(both, **{key: value for key, value in values.items() if value is not None})
    if both.queues is None:
        close = difflib.get_close_matches(name, groups, n=1)
        raise ConfigError(
            f"the application has no group {name!r}",
            hint=f"did you mean {close[0]!r}?" if close else 'to make one, set its queues = ["…"]',
            location=f"[groups.{name}]",
        )
    return Grouped(name, both.queues, both)


def _limited(group: Grouped, queues: Mapping[str, int | None]) -> Grouped:
    """The group with the queues of ``--queue`` alone, and with its number.

    Raises ConfigError for a number of one of several queues.
    """
    limited = group.limited(queues)
    numbers = {name: queues[name] for name in limited.queues if queues[name] is not None}
    if numbers and len(limited.queues) > 1:
        name, number = next(iter(numbers.items()))
        raise ConfigError(
            f"the queue {name!r} shares the workers of the group {group.name!r}",
            hint=f'set the number of the group: --group "{",".join(limited.queues)}={number}"',
            location=f"--queue {name}={number}",
        )
    return replace(limited, number=next(iter(numbers.values()), None))


def _queues_of(groups: Iterable[Grouped]) -> list[str]:
    return [name for group in groups for name in group.queues]


def _check_apart(groups: Sequence[Grouped]) -> None:
    """Raise ConfigError if a queue is in two groups."""
    for one, other in combinations(groups, 2):
        if shared := [name for name in one.queues if name in other.queues]:
            raise ConfigError(
                f"the queue {shared[0]!r} is in two groups, {one.name!r} and {other.name!r}",
                hint="a queue is in one group of a server",
            )


def _check_names(groups: Iterable[Grouped]) -> None:
    """Raise ConfigError if two groups have one name: a queue in no group is a group with its name."""
    names: set[str] = set()
    for group in groups:
        if group.name in names:
            raise ConfigError(
                f"the group {group.name!r} has the name of a queue that is in no group",
                hint="rename the group, or put the queue into it",
            )
        names.add(group.name)


def _check_known(names: Iterable[str], known: Collection[str], where: str, several: str = "") -> None:
    """Raise ConfigError for an unknown queue; ``several`` is the hint for a name that is a list of them."""
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(sorted(known))}"
            if several and "," in name:
                hint = several.format(name)
            raise ConfigError(
                f"the application has no handler for the queue {name!r}",
                hint=hint,
                location=where.format(name),
            )
