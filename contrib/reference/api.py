"""The reference of the API: which names are public, and the directives that mkdocstrings replaces.

griffe reads the source; nothing of pyworkers is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import griffe

from contrib.reference.sources import ROOT

# Modules with public names, and the purpose of each.
MODULES = {
    "pyworkers": "Applications and producers: declare jobs, enqueue them, and talk to the running one.",
    "pyworkers.api": "Administration: queues, job sets, servers, cron entries and statistics.",
    "pyworkers.api.browse": "Jobs of any place by page or filter, one job by its id, actions on those found.",
    "pyworkers.testing": "Test support: enqueue without Redis, and run the enqueued jobs.",
    "pyworkers.integrations": "Frameworks: one module each, which needs the framework.",
}


def pages() -> dict[str, Callable[[], str]]:
    """The functions that write the page of each module."""
    return {module: partial(page, module) for module in MODULES}


def page(module: str) -> str:
    """The page of a module: a directive for each of its public names."""
    directives = "".join(f"\n::: {name}\n" for name in public_names(module))
    return f"# {module}\n\n{MODULES[module]}\n{directives}"


def public_names(module: str) -> list[str]:
    """The full names that a module declares public: its ``__all__``, else its own definitions."""
    found = _package()[module.partition(".")[2]] if "." in module else _package()
    if found.exports is not None:
        return sorted(f"{module}.{_text(name)}" for name in found.exports)
    if not isinstance(found, griffe.Module):
        raise TypeError(f"{module} is no module")
    own = [name for name, member in found.members.items() if _is_public(name, member)]
    inner = [name for name, member in found.modules.items() if not name.startswith("_")]
    return sorted(f"{module}.{name}" for name in own) + [
        name for folder in inner for name in public_names(f"{module}.{folder}")
    ]


def undocumented() -> Iterator[str]:
    """Public names without a docstring. An attribute of a class is described by its name and type."""
    for module in MODULES:
        for name in public_names(module):
            found = _target(_package()[name.partition(".")[2]])
            if found.docstring is None:
                yield name
            if isinstance(found, griffe.Class):
                yield from (f"{name}.{member}" for member in _undocumented_members(found))


def _undocumented_members(found: griffe.Class) -> Iterator[str]:
    for name, member in found.all_members.items():
        target = _target(member)
        is_field = target.is_attribute and "property" not in target.labels
        if not name.startswith("_") and not is_field and target.docstring is None:
            yield name


def _is_public(name: str, member: griffe.Object | griffe.Alias) -> bool:
    return not (name.startswith("_") or member.is_alias) and (member.is_class or member.is_function)


def _target(member: griffe.Object | griffe.Alias) -> griffe.Object:
    return member.final_target if isinstance(member, griffe.Alias) else member


def _text(name: str | griffe.Expr) -> str:
    return name if isinstance(name, str) else str(getattr(name, "name", name))


@cache
def _package() -> griffe.Module:
    loader = griffe.GriffeLoader(search_paths=[ROOT])
    package = loader.load("pyworkers")
    loader.resolve_aliases(implicit=True, external=False)
    if not isinstance(package, griffe.Module):
        raise TypeError("pyworkers is no module")
    return package
