"""Classes: what servers say of their jobs, and which servers that share a queue know other ones.

Read by ``pyworkers check`` and the dashboard; changes nothing. A server of pyworkers writes the classes that
its application declares for each queue, null for a queue whose handler runs every class, and what they take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Mode, Steps, command, every
from pyworkers.store.processes.reading import live
from pyworkers.store.transport.replies import maybe_blob
from pyworkers.store.values import decoded_json

_MOST_SERVERS = 1000


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


class Signature(NamedTuple):
    """What a job takes: its parameters in words, and how many arguments; ``most`` None: any number."""

    parameters: str
    least: int
    most: int | None

    def takes(self, number: int) -> bool:
        """True if a job can have this many arguments."""
        return self.least <= number and (self.most is None or number <= self.most)


class KnownClass(NamedTuple):
    """A class that live servers run: its queues, and what its jobs take, by each version of the code."""

    queues: tuple[str, ...]
    signatures: tuple[Signature, ...] = ()

    def takes(self, number: int) -> bool:
        """False if each server refuses a job with this many arguments."""
        return not self.signatures or any(one.takes(number) for one in self.signatures)


def known_classes(keys: Keys) -> Steps[dict[str, KnownClass]]:
    """The classes that live servers of pyworkers declare, by name; at most a thousand servers are asked."""
    names = [view.identity for view in (yield from live(keys))]
    reads = [
        command("HMGET", keys.process(name), "classes", "signatures", read=list)
        for name in sorted(names)[:_MOST_SERVERS]
    ]
    stored = (yield from every(reads, Mode.LENIENT)) if reads else []
    found: dict[str, KnownClass] = {}
    for classes, signatures in filter(None, stored):
        taken = _signatures(signatures)
        for queue, declared in _classes(classes).items():
            for name in declared or ():
                before = found.get(name, KnownClass(()))
                queues = dict.fromkeys((*before.queues, queue))
                own = dict.fromkeys((*before.signatures, *taken.get(name, ())))
                found[name] = KnownClass(tuple(queues), tuple(own))
    return dict(sorted(found.items()))


def _signatures(stored: Any) -> dict[str, tuple[Signature]]:
    """The signatures by class, without those that are not as this version writes them."""
    found = decoded_json(stored, dict) if isinstance(stored, bytes) else None
    return {
        name: (Signature(*value),)
        for name, value in (found or {}).items()
        if isinstance(value, list) and len(value) == 3 and _is_signature(*value)
    }


def _is_signature(parameters: object, least: object, most: object) -> bool:
    return isinstance(parameters, str) and type(least) is int and (most is None or type(most) is int)


def declarations(keys: Keys) -> Steps[list[Declared]]:
    """The live servers of pyworkers that describe their classes, by name."""
    ours = (view for view in (yield from live(keys)) if view.look is not None)
    views = sorted(ours, key=lambda view: view.identity)
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
