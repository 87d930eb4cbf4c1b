"""The HTTP endpoint, if it can be had: it needs an extra, which the master must not.

Runs in the master's event loop.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from pyworkers.errors import ConfigError
from pyworkers.server.http.pages import Sources, Views


def endpoint(bind: str, sources: Sources) -> Coroutine[Any, Any, None]:
    """What serves at ``HOST:PORT`` until it is cancelled. Raises ConfigError without the extra ``http``."""
    try:
        from pyworkers.server.http.endpoint import Endpoint
    except ImportError as error:
        hint = "pip install 'pyworkers-server[http]'"
        text = f"it needs the extra http, of which {error.name} is missing"
        raise ConfigError(text, hint=hint, location="http.bind") from error
    return Endpoint(bind, Views(sources)).run()
