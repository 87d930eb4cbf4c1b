"""Prefixing: the path below which a proxy shows the dashboard, whether the proxy keeps it or strips it."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send


class Prefixed:
    """Gives each request the ``root_path`` of ASGI, and the prefix in its path if the proxy has stripped it.

    ``routes`` of the application: a prefix such as ``/jobs`` is also the address of a page, so that
    the segment after it tells which of the two it is.
    """

    def __init__(self, app: ASGIApp, prefix: str, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._prefix = prefix
        # The JSON, and the pages of another Redis, are below no route with its own path.
        self._pages = {"", "api", "redis", *(_first(getattr(route, "path", "")) for route in routes)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "root_path": self._prefix, **self._whole(scope)}
        await self._app(scope, receive, send)

    def _whole(self, scope: Scope) -> Scope:
        """The path with its prefix."""
        path, raw, prefix = scope["path"], scope.get("raw_path"), self._prefix
        if self._is_kept(path, scope["query_string"]):
            # Without a slash, it is the overview: the browser has its cookies for what is below.
            return {"path": f"{prefix}/", "raw_path": f"{prefix}/".encode()} if path == prefix else {}
        return {"path": prefix + path, "raw_path": raw and prefix.encode() + raw}

    def _is_kept(self, path: str, query: bytes) -> bool:
        if path == self._prefix:
            # The overview takes a token alone: other fields belong to a page with the name of the prefix.
            return _first(path) not in self._pages or not query or query.startswith(b"token=")
        return path.startswith(f"{self._prefix}/") and _first(path.removeprefix(self._prefix)) in self._pages


def _first(path: str) -> str:
    return path.strip("/").partition("/")[0]
