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

# The scripts that remove jobs, and with them apply effects.
_WITH_EFFECTS = frozenset({"exchange", "move", "remove", "revoke", "withdraw"})


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
    """The script of that name, with the shared functions in front."""
    shared = ("prelude", "effects") if name in _WITH_EFFECTS else ("prelude",)
    folder = files(__package__)
    text = "".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in (*shared, name))
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
