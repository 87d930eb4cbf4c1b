"""Names of what a stub declares, each of them once. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """The names that are taken in one place of a file: in a module, in a type, in the arguments of a job."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def new(self, wanted: str) -> str:
        """This name, or the first one with a number that is free."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}{number}", number + 1
        self._taken.add(name)
        return name
