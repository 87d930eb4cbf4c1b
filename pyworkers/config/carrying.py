"""Carrying: which values of structlog's context a producer writes into its jobs (``[log] carry``).

Used by programs that enqueue, also inside jobs. In a job they are the names of its server, which the
fork server sets and the workers inherit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyworkers.errors import ConfigError
from pyworkers.protocol.flow.carrying import check_names

if TYPE_CHECKING:
    from pyworkers.config.sources import Place

_CONFIG = "PYWORKERS_CONFIG"
_CARRY = "PYWORKERS_LOG__CARRY"

_own: tuple[str, ...] | None = None


def hand_over(names: Sequence[str] | None) -> None:
    """Set the names for the clients in this process; None in a process that belongs to no server."""
    global _own
    _own = None if names is None else tuple(names)


def names_for(
    given: Sequence[str] | None, env: Mapping[str, str], path: str | Place | None = None
) -> tuple[str, ...]:
    """The names of a producer: as given; else in a job the names of its server, elsewhere the configuration.

    That is ``PYWORKERS_LOG__CARRY``, or else the file at ``path`` or at ``PYWORKERS_CONFIG``. Raises
    ConfigError.
    """
    if given is not None:
        return checked(given)
    if _own is not None:
        return _own
    if _CARRY in env:
        return _loaded(None, {_CARRY: env[_CARRY]})
    place = path or env.get(_CONFIG)
    if not place:
        return ()
    if callable(place):
        return _loaded(place, {})
    return _loaded(Path(place), {}) if _names_some(Path(place)) else ()


def _names_some(path: Path) -> bool:
    """False for a file without such a key, which is not parsed again, and for one that cannot be read.

    The connection to Redis, which needs the file, reports that.
    """
    try:
        return b"carry" in path.read_bytes()
    except OSError:
        return False


def _loaded(place: Place | None, env: Mapping[str, str]) -> tuple[str, ...]:
    # Imported here, because most producers have none.
    from pyworkers.config.loading import load

    return load(place, env=env).log.carry


def checked(given: Sequence[str]) -> tuple[str, ...]:
    """The names that a program gives. Raises ConfigError."""
    if not isinstance(given, list | tuple):
        raise ConfigError(f"carry is a list of names, not {given!r}", hint='carry=["request_id"]')
    try:
        check_names(given)
    except ValueError as error:
        raise ConfigError(f"carry {error}") from error
    return tuple(given)
