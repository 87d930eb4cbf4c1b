"""Full: small writes that Redis also takes while its memory is full: alarms, and changes that free memory.

Used by ``api`` and ``alarms``; servers have their own scripts for what must go on then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Request, script

T = TypeVar("T")


def write(keys: Keys, name: str, key: str, *args: Any, read: Callable[[Any], T]) -> Request[T]:
    """One command; ``args`` follow its key."""
    return writes(keys, (name, key, *args), read=lambda replies: read(replies[0]))


def writes(keys: Keys, *commands: tuple[Any, ...], read: Callable[[list[Any]], T]) -> Request[T]:
    """Several commands in one step, each with its name, its key and its arguments."""
    names = [key for _, key, *_ in commands]
    args = [part for name, _, *rest in commands for part in (len(rest), name, *rest)]
    return script("write", [keys.cancelled, *names], args, read, keys.namespace)
