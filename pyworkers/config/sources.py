"""The sources of the configuration: file, environment and command line, each as a stream of settings.

Run by the command line, through ``loading``. Refuses unknown keys, and finds the line of a key in the file.
Never checks a value: types and rules are in ``loading``.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyworkers.config.groups import check_group_name
from pyworkers.config.options import LISTS, KeyPath, Options
from pyworkers.config.stores import REDIS_KEYS, check_redis_name
from pyworkers.errors import ConfigError
from pyworkers.protocol.keys import check_queue_name

ENV_PREFIX = "PYWORKERS_"
# The sections with a table for each queue or group.
_NAMED = ("queues", "groups")
_REDIS = "redis"
_REDIS_KEYS = {(name,) for name in REDIS_KEYS}
# The section inside of another one.
_INNER = ("web", "oidc")


@dataclass(frozen=True, slots=True)
class ConfiguredValue:
    """One configured value. ``locate`` returns its place; ``is_text``: its source holds only text."""

    path: KeyPath
    label: str
    value: object
    locate: Callable[[], str]
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """The file as text and as data; it finds the line of a key, which tomllib does not.

    Or data that another program holds, e.g. the settings of a Django project.
    """

    path: Path | None
    text: str
    data: dict[str, Any]
    name: str = ""
    """Where the data are, if in no file."""

    def label(self, path: KeyPath) -> str:
        """The dotted key, with the name of an entry of a list, or its number if that is no printable text."""
        if path[0] in LISTS and len(path) > 1:
            entry = self.data[path[0]][int(path[1])]
            name = entry.get("name") if isinstance(entry, dict) else None
            if not (isinstance(name, str) and name and name.isprintable()):
                name = f"#{int(path[1]) + 1}"
            path = (path[0], name, *path[2:])
        return ".".join(path)

    def location(self, path: KeyPath) -> str:
        """``file:line`` of a key in the file: the line after the longest valid prefix without the key.

        It parses the file again for each step of the search: only for an error that is reported.
        """
        if self.path is None:
            return self.name
        lines = self.text.split("\n")

        def holds(count: int) -> bool:
            return _holds(_beginning(lines, count)[1], path)

        # The first ``end`` lines are the shortest part with the key; its value may span several lines.
        end = bisect_left(range(len(lines)), True, key=holds)
        return f"{self.path}:{_beginning(lines, end - 1)[0] + 1}"


def _beginning(lines: list[str], count: int) -> tuple[int, object]:
    """The longest valid prefix of the first ``count`` lines: its number of lines, and its data.

    The line ``count`` may be inside a value that spans several lines.
    """
    while True:
        try:
            return count, tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            count -= 1


def _holds(data: Any, path: KeyPath) -> bool:
    try:
        for key in path:
            data = data[int(key)] if isinstance(data, list) else data[key]
    except (LookupError, TypeError):
        return False
    return True


Place = Path | Callable[[], Document]
"""The file of a configuration, or a function that reads it elsewhere."""


def read(path: Place | None) -> Document:
    """The file, or an empty document for None. Raises ConfigError for invalid TOML or an unreadable file."""
    if path is None:
        return Document(None, "", {})
    if not isinstance(path, Path):
        return path()
    try:
        text = path.read_text(encoding="utf-8")
        return Document(path, text, tomllib.loads(text))
    except FileNotFoundError as exc:
        raise ConfigError("no such file", location=str(path)) from exc
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", location=str(path)) from exc
    except ValueError as exc:  # TOMLDecodeError, which names line and column, or UnicodeDecodeError
        raise ConfigError(f"not valid TOML: {exc}", location=str(path)) from exc


def from_file(document: Document, options: Options) -> Iterator[ConfiguredValue]:
    """Yield the settings of the file, in its order."""
    return _walk(document, (), document.data, options)


def _walk(document: Document, path: KeyPath, value: object, options: Options) -> Iterator[ConfiguredValue]:
    """Yield the options in the tables below ``path``. A key that leads to no option is unknown."""
    pattern = pattern_of(path)
    if pattern == (_REDIS, "*") and not isinstance(value, dict):
        raise _unknown(path, document.location(path), options, document.label)
    if pattern in options:
        yield ConfiguredValue(path, document.label(path), value, partial(document.location, path))
        return
    if not any(option[: len(path)] == pattern for option in options):
        raise _unknown(path, document.location(path), options, document.label)
    for key, child in _children(document, path, value).items():
        yield from _walk(document, (*path, key), child, options)


def _children(document: Document, path: KeyPath, value: object) -> dict[str, Any]:
    is_list = len(path) == 1 and path[0] in LISTS
    if is_list and isinstance(value, list):
        return {str(number): entry for number, entry in enumerate(value)}
    if not isinstance(value, dict) or is_list:
        header = f"[[{path[0]}]]" if path[0] in LISTS else f"[{document.label(path)}]"
        hint = f"write {header} on its own line, and its keys below"
        raise ConfigError(
            f"{document.label(path)}: must be a table", hint=hint, location=document.location(path)
        )
    if len(path) == 2 and (path[0] in _NAMED or pattern_of(path) == (_REDIS, "*")):
        _check_name(path, partial(document.location, path))
    return value


def from_redis_url(env: Mapping[str, str], overrides: Mapping[str, object]) -> Iterator[ConfiguredValue]:
    """Yield the setting of ``REDIS_URL``, which other programs use, too.

    It is ignored if a variable of pyworkers or an override sets ``redis.url``.
    """
    overridden = variable(("redis", "url")) in env or "redis.url" in overrides
    if env.get("REDIS_URL") and not overridden:
        yield ConfiguredValue(("redis", "url"), "redis.url", env["REDIS_URL"], lambda: "REDIS_URL")


def from_env(env: Mapping[str, str], document: Document, options: Options) -> Iterator[ConfiguredValue]:
    """Yield the settings of ``PYWORKERS_APP`` and ``PYWORKERS_SECTION__KEY``."""
    sections = tuple(f"{ENV_PREFIX}{path[0].upper()}__" for path in options if len(path) > 1)
    for name in sorted(env):
        # A name like PYWORKERS_LOG is ignored: it may belong to another program. PYWORKERS_LOG__LEVL is an
        # error, because it begins with the name of a section.
        if name == variable(("app",)) or name.startswith(sections):
            path = _split(name.removeprefix(ENV_PREFIX).lower(), "__")
            if len(path) == 3:
                path = (path[0], _called(path[1], document.data.get(path[0], ())), path[2])
            label = _known_label(path, name, options, variable)
            yield ConfiguredValue(path, label, env[name], partial(str, name), is_text=True)


def from_overrides(overrides: Mapping[str, object], options: Options) -> Iterator[ConfiguredValue]:
    """Yield the settings of the command line, which are given by dotted keys."""
    for key, value in overrides.items():
        path = _split(key, ".")
        yield ConfiguredValue(
            path, _known_label(path, "command line", options, ".".join), value, lambda: "command line"
        )


def _known_label(path: KeyPath, location: str, options: Options, spell: Callable[[KeyPath], str]) -> str:
    """The dotted key. Raises ConfigError for an unknown one; ``spell`` formats a key as in its source."""
    if path[0] in LISTS:
        what = {"cron": "cron entries", "alarm": "alarms"}[path[0]]
        raise ConfigError(f"{what} are read from the file only", location=location)
    if pattern_of(path) not in options:
        raise _unknown(path, location, options, spell)
    if len(path) == 3 and path[:2] != _INNER:
        _check_name(path, lambda: location)
    return ".".join(path)


def _split(text: str, separator: str) -> KeyPath:
    """``queues.a.b.timeout`` is ("queues", "a.b", "timeout"): the name of a queue may hold the separator."""
    section, _, rest = text.partition(separator)
    if section in _NAMED or (section == _REDIS and separator in rest):
        name, _, key = rest.rpartition(separator)
        return section, name, key
    if text.startswith(separator.join((*_INNER, ""))):
        return (*_INNER, text.removeprefix(separator.join((*_INNER, ""))))
    return (section, rest) if rest else (section,)


def variable(path: KeyPath) -> str:
    """The name of the environment variable for a key."""
    return ENV_PREFIX + re.sub(r"[^A-Z0-9_]", "_", "__".join(path).upper())


def _called(name: str, known: Iterable[str]) -> str:
    """The Redis, queue or group that a variable names: LOW_PRIORITY is ``low-priority`` if the file has it.

    The name of a variable has neither a dash nor lower case.
    """
    return next((one for one in known if variable((one,)) == variable((name,))), name)


def pattern_of(path: KeyPath) -> KeyPath:
    """The path as in the table of options: * for the name of a Redis, queue or group, and a number."""
    if len(path) < 2:
        return path
    is_named = path[0] in (*_NAMED, *LISTS) or (path[0] == _REDIS and path[1:] not in _REDIS_KEYS)
    return (path[0], "*", *path[2:]) if is_named else path


def _unknown(path: KeyPath, location: str, options: Options, spell: Callable[[KeyPath], str]) -> ConfigError:
    parent = pattern_of(path)[:-1]
    siblings = sorted({option[len(parent)] for option in options if option[: len(parent)] == parent} - {"*"})
    close = difflib.get_close_matches(path[-1], siblings, n=1)
    near = f"did you mean {spell((*path[:-1], close[0]))}?" if close else f"known here: {', '.join(siblings)}"
    return ConfigError(f"unknown key {spell(path)}", hint=near, location=location)


def _check_name(path: KeyPath, locate: Callable[[], str]) -> None:
    checks = {"queues": check_queue_name, "groups": check_group_name, _REDIS: check_redis_name}
    try:
        checks[path[0]](path[1])
    except ValueError as exc:
        raise ConfigError(str(exc), location=locate()) from exc
