"""Opening: imports and opens the HTTP endpoint; only a server with an endpoint needs the extra ``http``.

Runs in the master's event loop.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from pyworkers.errors import ConfigError
from pyworkers.server.http.pages import Sources, Views


def endpoint(bind: str, sources: Sources) -> Coroutine[Any, Any, None]:
    """A coroutine that serves at ``HOST:PORT`` until it is cancelled.

    Raises ConfigError without the extra ``http``.
    """
    try:
        from pyworkers.server.http.endpoint import Endpoint
    except ImportError as error:
        hint = "pip install 'pyworkers-server[http]'"
        text = f"the endpoint needs the extra http, and {error.name} is missing"
        raise ConfigError(text, hint=hint, location="http.bind") from error
    return Endpoint(bind, Views(sources)).run()
