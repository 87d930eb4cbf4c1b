"""The setting ``PYWORKERS``: the keys of the configuration file, and keys for Django alone.

Read where they are needed, never at an import. Nothing here connects to Redis or to a database.
"""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.functional import Promise

from pyworkers.config.fields import Config
from pyworkers.config.options import SECTIONS
from pyworkers.config.sources import Document
from pyworkers.errors import ConfigError
from pyworkers.programs.interpreter import Interpreter

APP = "pyworkers.integrations.django:worker"
# The import of the settings takes a part of a second. Meanwhile the master does nothing else.
_LONGEST_READ_S = 30.0
_PROGRAM = f"""
from pyworkers.programs.interpreter import prepare
from {__name__} import print_settings
prepare({{this.modules!r}}, {{this.path!r}})
print_settings()
"""


@dataclass(frozen=True, slots=True)
class DjangoSettings:
    """The keys of ``PYWORKERS`` that no configuration file has."""

    database: str = "default"
    """The connection whose transaction an enqueue call waits for."""
    on_commit: bool = True
    """False: a job is enqueued at once, also inside a transaction."""
    dashboard_url: str = ""
    """The address of the dashboard, for the link in the admin."""
    task_queues: Mapping[str, Any] = field(default_factory=dict)
    """The queues of ``django.tasks`` by their range of priorities."""


_TYPES: Mapping[str, tuple[type, str]] = {
    "database": (str, "the name of a connection"),
    "on_commit": (bool, "True or False"),
    "dashboard_url": (str, "an address"),
    "task_queues": (dict, "a dict"),
}
_OF_THE_FILE = ("app", *dict.fromkeys(path[0] for path, cls in SECTIONS if cls is not Config))
_KNOWN = sorted((*_OF_THE_FILE, *_TYPES))


def django_settings() -> DjangoSettings:
    """Django's own keys. Raises ConfigError."""
    given = _given()
    for name, (kind, words) in _TYPES.items():
        if not isinstance(given.get(name, kind()), kind):
            raise ConfigError(f"{name}: must be {words}, not {given[name]!r}", location=_place())
    return DjangoSettings(**{name: given[name] for name in _TYPES if name in given})


def read_settings() -> Document:
    """The keys of the configuration file. Raises ConfigError for an unknown first key."""
    given = _given()
    for key in given:
        if key not in _KNOWN:
            close = difflib.get_close_matches(key, _KNOWN, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(_KNOWN)}"
            raise ConfigError(f"unknown key {key}", hint=hint, location=_place())
    data = {"app": APP, **{key: _plain(value) for key, value in given.items() if key not in _TYPES}}
    return Document(None, "", data, _place())


def read_settings_again() -> Document:
    """As ``read_settings``, by a new process: this one has imported the settings. Blocks for its time."""
    try:
        interpreter = Interpreter.of_this_process()
        done = subprocess.run(
            interpreter.command(_PROGRAM.format(this=interpreter)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST_READ_S,
        )
        if done.returncode:
            raise ConfigError(done.stderr.strip() or f"exit code {done.returncode}", location=_place())
        return Document(None, "", json.loads(done.stdout.splitlines()[-1]), _place())
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"cannot be read: {error}", location=_place()) from error


def print_settings() -> None:
    """Print the keys of the configuration file as JSON: the program of ``read_settings_again``."""
    try:
        print(json.dumps(read_settings().data, default=str))
    except ConfigError as error:
        sys.exit(f"{error.message}\n{error.hint}".strip())


def _given() -> Mapping[str, Any]:
    given = getattr(settings, "PYWORKERS", {})
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise ConfigError(
            "must be a dict with the keys of the configuration file",
            hint='PYWORKERS = {"redis": {"url": "redis://127.0.0.1:6379/0"}}',
            location=_place(),
        )
    return given


def _place() -> str:
    return f"PYWORKERS in {getattr(settings, 'SETTINGS_MODULE', None) or 'the settings'}"


def _plain(value: Any) -> Any:
    """The value as TOML has it: a list for a tuple, text for a path and for a lazy text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path | Promise) else value
