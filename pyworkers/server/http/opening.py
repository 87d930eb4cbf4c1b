"""Opening: imports and opens the HTTP endpoint; only a server with an endpoint needs the extra ``http``.

Runs in the master's event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from pyworkers.config.fields import HttpConfig
from pyworkers.errors import ConfigError
from pyworkers.server.http.pages import Views
from pyworkers.server.waiting import StartTask


class _Endpoint(Protocol):
    """An endpoint that listens."""

    def run(self) -> Coroutine[Any, Any, None]:
        """Serve until cancelled, or until ``leave``."""

    def fileno(self) -> int:
        """The listening socket."""

    def leave(self) -> None:
        """Accept nothing more; requests under way are answered."""


class HttpEndpoint:
    """The HTTP endpoint of ``[http]`` with ``views``; none if its ``bind`` is empty. ``start`` runs a task.

    Raises ConfigError if the extra ``http`` is missing.
    """

    def __init__(self, config: HttpConfig, views: Views, start: StartTask) -> None:
        self._config = config
        self._views = views
        # Imported at the start of the server: later, the files may belong to another release.
        self._make = _maker() if config.bind else None
        self._start = start
        self._endpoint: _Endpoint | None = None

    def open(self, listener: int | None = None) -> None:
        """Serve; ``listener`` is a socket that listens at the address already.

        Raises ConfigError: the address is invalid or in use.
        """
        if self._make is not None:
            self._endpoint = self._make(self._config, self._views, listener)
            self._start(self._endpoint.run(), "http")

    def listener(self) -> int:
        """The listening socket; -1 if there is none."""
        return -1 if self._endpoint is None else self._endpoint.fileno()

    def leave(self) -> None:
        """Accept nothing more; requests under way are answered."""
        if self._endpoint is not None:
            self._endpoint.leave()


def _maker() -> Callable[[HttpConfig, Views, int | None], _Endpoint]:
    try:
        from pyworkers.server.http.endpoint import Endpoint
    except ImportError as error:
        hint = "pip install 'pyworkers-server[http]'"
        text = f"the endpoint needs the extra http, and {error.name} is missing"
        raise ConfigError(text, hint=hint, location="http.bind") from error
    return Endpoint
