"""The Lua scripts: one for each change of state. Run by the master and by ``api``, with shared functions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from redis import Redis as BlockingRedis
from redis.exceptions import NoScriptError


class Commands(Protocol):
    """A connection that sends a command: a client of redis-py, or a Link."""

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        """The reply; the option ``read`` is the function that reads it. Raises redis-py's errors."""


@dataclass(frozen=True, slots=True)
class Script:
    """One script, called by its digest, or by its text if the server lost it (restart, SCRIPT FLUSH)."""

    text: str
    sha: str

    def call(self, redis: BlockingRedis, keys: Sequence[str | bytes], args: Sequence[Any]) -> Any:
        """Run it over a blocking client. Raises redis-py's errors."""
        try:
            return redis.execute_command("EVALSHA", self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return redis.execute_command("EVAL", self.text, len(keys), *keys, *args)


@cache
def load(name: str) -> Script:
    """The script of that name, as ``cron/fire``, with the shared functions in front."""
    text = _text(name)
    # The scripts that remove jobs apply the effects of their ends, and those that push jobs the effects of
    # their terms. Effects count members of batches, and free the slots of limits.
    push = ("push",) if "push_jobs(" in text else ()
    effects = ("effects",) if push or "apply_effects(" in text else ()
    batches = ("batches",) if effects or "batch." in text else ()
    waiting = ("waiting",) if effects or "clock(" in text else ()
    sweep = ("sweep",) if "sweeping(" in text else ()
    tokens = ("tokens",) if "token_of(" in text else ()
    shared = ("prelude", *batches, *waiting, *effects, *push, *sweep, *tokens)
    text = "".join(_text(f"shared/{part}") for part in shared) + text
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def keep() -> None:
    """Read the texts of all scripts now: later, the files may be those of another release."""
    package = files(__package__)
    for place in package.iterdir():
        for file in place.iterdir() if place.is_dir() else (place,):
            if file.name.endswith(".lua"):
                folder = "" if place is file else f"{place.name}/"
                _text(folder + file.name.removesuffix(".lua"))


@cache
def _text(name: str) -> str:
    return (files(__package__) / f"{name}.lua").read_text(encoding="utf-8")
