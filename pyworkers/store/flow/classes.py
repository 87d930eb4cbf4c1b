"""Classes: finds servers that share a queue, and do not know each other's jobs.

Read by ``pyworkers check``; changes nothing. A server of pyworkers writes the classes that its application
declares for each queue; null stands for a queue whose handler runs every class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Mode, Steps, command, every
from pyworkers.store.heartbeat import clock
from pyworkers.store.processes.reading import Processes
from pyworkers.store.transport.replies import maybe_blob
from pyworkers.store.values import decoded_json


@dataclass(frozen=True, slots=True)
class Declared:
    """A server, or an application, with its queues and the classes that it declares for each."""

    name: str
    queues: frozenset[str]
    classes: Mapping[str, Sequence[str] | None]

    @property
    def known(self) -> frozenset[str]:
        """All classes that it runs, of all its queues."""
        return frozenset(job for found in self.classes.values() for job in found or ())


@dataclass(frozen=True, slots=True)
class UnawareServer:
    """A server that takes jobs of ``queue``, and does not know ``classes`` that ``other`` declares for it."""

    name: str
    other: str
    queue: str
    classes: tuple[str, ...]


def declarations(keys: Keys) -> Steps[list[Declared]]:
    """The live servers of pyworkers that describe their classes, by name."""
    now = yield from clock()
    views = [view for view in (yield from Processes(keys).rest()) if not view.silent(now)]
    views = sorted((view for view in views if view.look is not None), key=lambda view: view.identity)
    reads = [command("HGET", keys.process(view.identity), "classes", read=maybe_blob) for view in views]
    stored = yield from every(reads, Mode.LENIENT)
    pairs = ((view, _classes(text)) for view, text in zip(views, stored, strict=True))
    return [Declared(view.identity, frozenset(view.queues), classes) for view, classes in pairs if classes]


def unaware_servers(declared: Sequence[Declared]) -> Iterator[UnawareServer]:
    """Each that shares a queue with another one, and does not know a class of that queue.

    Of several servers that declare the same, the first is compared.
    """
    for one, other in permutations(_distinct(declared), 2):
        for queue in sorted(one.queues & other.queues):
            missing = sorted({*(other.classes.get(queue) or ())} - one.known)
            if missing and one.classes.get(queue, ()) is not None:
                yield UnawareServer(one.name, other.name, queue, tuple(missing))


def _distinct(declared: Sequence[Declared]) -> list[Declared]:
    first: dict[object, Declared] = {}
    for one in declared:
        pairs = ((queue, None if names is None else frozenset(names)) for queue, names in one.classes.items())
        first.setdefault((one.queues, frozenset(pairs)), one)
    return list(first.values())


def _classes(stored: Any) -> dict[str, list[str] | None]:
    """The classes by queue; empty if they are missing, or not as this version writes them."""
    found = decoded_json(stored, dict) if isinstance(stored, bytes) else None
    return found if found and all(map(_is_list, found.values())) else {}


def _is_list(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value))
