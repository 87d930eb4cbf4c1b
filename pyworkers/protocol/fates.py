"""Fates: what happens to a failed job by the class of its exception, as its handler declares it.

Pure; made when the application is imported, asked in the worker process for each exception of a job. It
counts no retries: an exception that is retried follows the rules of retry.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyworkers.errors import DeclarationError, FateChosen, Interrupted, JobCancelled, JobTimeout, WorkerLost
from pyworkers.protocol.outcome import Fate

Classes = Iterable[type[BaseException]]
# Their meaning is fixed, or, for WorkerLost, no job raises them.
_FIXED = (FateChosen, Interrupted, JobCancelled, WorkerLost)
_OWN_MODULE = JobTimeout.__module__
# Without the metaclass of a class, whose attributes may raise.
_mro, _namespace = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__


class Fates:
    """The fates by class, from ``retry_on``, ``discard_on`` and ``dead_on``."""

    __slots__ = ("_by_class", "_retries_listed_alone")

    def __init__(self, retry: Classes = (), discard: Classes = (), dead: Classes = ()) -> None:
        lists = {Fate.RETRY: tuple(retry), Fate.DISCARD: tuple(discard), Fate.DEAD: tuple(dead)}
        self._by_class = {kind: fate for fate, kinds in lists.items() for kind in kinds}
        self._retries_listed_alone = bool(lists[Fate.RETRY])

    def of(self, kind: type[BaseException]) -> Fate | None:
        """The fate of a job that raised this class; None if the rules of retries decide, as after a tie."""
        if not self._by_class:
            return None
        fates = {self._by_class[listed] for listed in self._closest(kind)}
        if not fates and self._retries_listed_alone and _namespace(kind).get("__module__") != _OWN_MODULE:
            # The exceptions of pyworkers are no part of the application's choice, e.g. JobTimeout.
            return Fate.DEAD
        fate = fates.pop() if len(fates) == 1 else None
        return None if fate is Fate.RETRY else fate

    def tie(self, kind: type[BaseException]) -> list[str]:
        """The names of the listed classes that are equally close to this one and disagree; none for most."""
        closest = self._closest(kind)
        agreed = len({self._by_class[listed] for listed in closest}) < 2
        return [] if agreed else [listed.__name__ for listed in closest]

    def _closest(self, kind: type[BaseException]) -> list[type[BaseException]]:
        """The listed classes of this one, without the bases of others of them."""
        known = list(self._by_class)
        # By identity: the metaclass of a class may raise when it is compared.
        listed = [each for each in _mro(kind) if any(each is one for one in known)]
        bases = {id(base) for each in listed for base in _mro(each)[1:]}
        return [each for each in listed if id(each) not in bases]


def fates_of(options: Mapping[str, Any]) -> Fates:
    """The fates that a declaration chooses. Raises DeclarationError for invalid lists."""
    names = "retry_on", "discard_on", "dead_on"
    lists = [_classes(name, options.get(name, ())) for name in names]
    first: dict[type[BaseException], str] = {}
    for name, kinds in zip(names, lists, strict=True):
        for kind in kinds:
            if first.setdefault(kind, name) != name:
                raise DeclarationError(f"{kind.__name__} is in {first[kind]} and in {name}")
    if lists[0] and "retry" in options and not options["retry"]:
        raise DeclarationError(f"retry_on has no effect with retry={options['retry']!r}")
    return Fates(*lists)


def _classes(name: str, given: object) -> tuple[type[BaseException], ...]:
    if not isinstance(given, tuple | list):
        raise DeclarationError(
            f"{name} must be a list of exceptions, not {given!r}", hint=f"{name}=(ValueError,)"
        )
    for kind in given:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise DeclarationError(f"{name} must be a list of exceptions, but has {kind!r}")
        if issubclass(kind, _FIXED):
            raise DeclarationError(f"{name} cannot hold {kind.__name__}: its meaning is fixed")
    return tuple(given)
