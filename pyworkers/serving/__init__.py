"""Serving: a server in a child process of another program: a test or a notebook.

Runs in that program. The child is a new interpreter, which imports the application by its name: nothing of it
is pickled, and this process, which may have threads, is not forked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyworkers.app import Worker
from pyworkers.config.fields import Config
from pyworkers.config.loading import load
from pyworkers.config.sources import Document
from pyworkers.serving.naming import app_of
from pyworkers.serving.server import Server

__all__ = ["Server", "serve"]


def serve(
    worker: Worker | str,
    config: str | Path | Mapping[str, Any] | Config | None = None,
    *,
    log: str | Path | None = None,
) -> Server:
    """Start a server for the application in a child process, and return when it runs.

        with serve(worker, {"redis": {"url": "embedded:.pyworkers"}}, log="server.log"):
            ...

    ``worker`` is the Worker of a module, or ``"module:attribute"``. ``config`` is the path of a file, which
    environment variables override as for ``pyworkers run``. Or it is a dict with the keys of such a file, or
    a Config: then the environment is not read. The default is the file that ``PYWORKERS_CONFIG`` names, if
    any. ``log`` is the file to which the child's output is appended; without it, this process's stderr.

    The server stops at the end of the ``with``, by ``stop()``, and when this process ends in any way. Ctrl-C
    in the terminal does not reach it. Raises what the server says if it does not run: ConfigError,
    AppImportError, RedisUnavailableError, EmbeddedError.
    """
    found = _config_of(config)
    return Server(replace(found, app=app_of(worker, found.app)), None if log is None else Path(log))


def _config_of(config: str | Path | Mapping[str, Any] | Config | None) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, Mapping):
        return load(lambda: Document(None, "", dict(config), name="config of serve"), env={})
    path = config or os.environ.get("PYWORKERS_CONFIG")
    return load(Path(path) if path else None, env=os.environ)
