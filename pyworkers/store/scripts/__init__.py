"""The Lua scripts: one for each change of state. Run by the master and by ``api``, with shared functions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pkgutil import get_data
from typing import Any, Protocol

from pyworkers.protocol.keys import undivided


class Commands(Protocol):
    """A connection that sends a command: a client of redis-py, or a Link."""

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        """The reply; the option ``read`` is the function that reads it. Raises redis-py's errors."""


@dataclass(frozen=True, slots=True)
class Script:
    """One script, called by its digest, or by its text if the server lost it (restart, SCRIPT FLUSH).

    ``prefixed``: it makes names of keys; its last argument is the prefix of all keys, ``Keys.namespace``.
    """

    text: str
    sha: str
    prefixed: bool

    def parts(self, namespace: str, keys: Sequence[Any], args: Iterable[Any]) -> tuple[Any, ...]:
        """The number of keys, the keys and the arguments of a call that may write several keys."""
        keys = [*keys, *undivided(namespace)]
        return (len(keys), *keys, *args, *((namespace,) if self.prefixed else ()))


@cache
def load(name: str) -> Script:
    """The script of that name, as ``cron/fire``, with the shared functions between its head and its code."""
    head, _, code = _text(name).partition("\n\n")
    text = f"{head}\n\n{_shared(code)}{code}"
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), "PREFIX" in text)


def _shared(code: str) -> str:
    """The functions that a script uses, and those that they use."""
    # The scripts that remove jobs apply the effects of their ends, which count members of batches, free the
    # slots of limits, and note runs of cron entries. Those that push or cancel jobs end waiting ones, which
    # counts members and notes runs.
    push = ("push",) if "push_jobs(" in code else ()
    ends = ("ends",) if push or "end_waiting(" in code else ()
    effects = ("effects",) if "apply_effects(" in code else ()
    batches = ("batches",) if effects or ends or "batch." in code else ()
    runs = ("runs",) if effects or ends else ()
    waiting = ("waiting",) if effects or "call_next(" in code else ()
    sweep = ("sweep",) if "sweeping(" in code else ()
    numbers = ("numbers",) if push or "is_score(" in code else ()
    tokens = ("tokens",) if "token_of(" in code else ()
    places = ("places",) if any(name in code for name in ("GONE", "index_near(", "around(")) else ()
    pages = ("pages",) if places or any(name in code for name in ("page_of(", "walk(", "PAGE_")) else ()
    scans = ("scans",) if "scan(" in code else ()
    undo = ("undo",) if "keeping(" in code else ()
    pushing = (*batches, *runs, *waiting, *effects, *ends, *numbers, *push)
    names = ("prelude", *pushing, *sweep, *tokens, *pages, *places, *scans, *undo)
    text = "".join(_text(f"shared/{part}") for part in names)
    return _text("shared/prefix") + text if "PREFIX" in text + code else text


def keep() -> None:
    """Read the texts of all scripts now: later, the files may be from another release."""
    package = files(__package__)
    for place in package.iterdir():
        for file in place.iterdir() if place.is_dir() else (place,):
            if file.name.endswith(".lua"):
                folder = "" if place is file else f"{place.name}/"
                _text(folder + file.name.removesuffix(".lua"))


@cache
def _text(name: str) -> str:
    # Not by ``files``, which reads the whole list of an archive's members for each script.
    data = get_data(__package__, f"{name}.lua")
    if data is None:
        raise FileNotFoundError(f"{__package__} was imported by a loader that reads no files")
    return data.decode()
