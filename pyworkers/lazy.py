"""Lazy names: a package whose public names are imported from their modules at their first use (PEP 562).

Used by packages that have many names, of which a program needs few. The package alone loads none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def getter(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package; ``homes`` has the full name of each module with its public names."""
    home_of = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name in home_of:
            return getattr(import_module(home_of[name]), name)
        if (module := f"{package}.{name}") in homes:
            # A module of the package, which its import alone has not loaded.
            return import_module(module)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
