"""Endpoint: /stats /livez /readyz /metrics over HTTP, in the master's event loop. Needs the extra ``http``.

Meant for the loopback interface: a client that can connect can read the arguments of running jobs. Each
connection serves one request and is open for ten seconds at most. The number of connections is limited
(``connections.py``).
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pyworkers import logs
from pyworkers.config.fields import HttpConfig
from pyworkers.errors import ConfigError, PyworkersError
from pyworkers.http.connections import HEAD_BYTES, BoundedConnection
from pyworkers.http.hosts import Hosts
from pyworkers.server.http.pages import Views

MOST_CONNECTIONS = 64
LONGEST_S = 10.0
_NO_METRICS = "/metrics needs the extra metrics: pip install 'pyworkers-server[metrics]'\n"

try:
    from pyworkers.server.http import prometheus
except ImportError:  # without the extra
    prometheus = None  # type: ignore[assignment]

log = logs.get_logger()


class Endpoint:
    """Listens from its construction on, at ``listener`` if that is a socket which listens there already.

    It answers to loopback, to IP addresses, and to the names in ``[http] hosts``.

    Raises ConfigError if the address is invalid or in use.
    """

    def __init__(self, http: HttpConfig, views: Views, listener: int | None = None) -> None:
        bind = http.bind
        self._socket = _listen(bind) if listener is None else _inherited(bind, listener)
        config = uvicorn.Config(
            _KnownHosts(
                _application(views, stats=http.stats), Hosts([*http.hosts, _host_of(bind)], any_address=True)
            ),
            http=_Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("connection", "close")],
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        self._server = _EndpointServer(config)

    async def run(self) -> None:
        """Serve until cancelled, or until ``leave``."""
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            # uvicorn leaves its listeners open if it was cancelled, or was to leave before it had started.
            self._server.leave()
            self._socket.close()

    def fileno(self) -> int:
        """The listening socket."""
        return self._socket.fileno()

    def leave(self) -> None:
        """Accept nothing more; requests under way are answered. The socket stays open in another process."""
        self._server.leave()


class _EndpointServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        # uvicorn sets it when it starts; ``leave`` may come before.
        self.servers: list[asyncio.Server] = []

    def leave(self) -> None:
        # Not uvicorn's own end: it closes connections whose request has not arrived yet.
        for listener in self.servers:
            listener.close()
        self.should_exit = not self.servers

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the master."""
        yield


class _Connection(BoundedConnection):
    most = MOST_CONNECTIONS
    longest_s = LONGEST_S
    serves_one = True


class _KnownHosts:
    """The application, for requests to known hosts: no name of another site leads a browser here."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A check of a load balancer may send none, a browser never.
        named = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        app = self._app
        if len(named) > 1 or (named and named[0] and not self._hosts.allow(named[0], scope)):
            app = PlainTextResponse("unknown host: add its name to hosts in [http]\n", 400)
        await app(scope, receive, send)


def _host_of(bind: str) -> str:
    return bind.rpartition(":")[0]


def _application(views: Views, *, stats: bool) -> Starlette:
    async def livez(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        ready = views.ready()
        failing = views.failing()
        about = {**ready, "failing": failing} if failing else ready
        if servers := views.redis_servers():
            about = {**about, "redis_servers": servers}
        return JSONResponse(about, 200 if all(ready.values()) else 503)

    async def show_stats(_request: Request) -> Response:
        try:
            return Response(await views.stats(), media_type="application/json")
        except PyworkersError as error:
            return JSONResponse({"error": error.message}, 503)

    async def metrics(_request: Request) -> Response:
        if prometheus is None:
            return PlainTextResponse(_NO_METRICS, 501)
        text = prometheus.exposition(await views.snapshots())
        return Response(text, headers={"content-type": prometheus.CONTENT_TYPE})

    pages: dict[str, Any] = {"livez": livez, "readyz": readyz, "metrics": metrics}
    if stats:
        pages["stats"] = show_stats
    return Starlette(routes=[Route(f"/{name}", page) for name, page in pages.items()])


def _inherited(bind: str, listener: int) -> socket.socket:
    log.info("http.listening", bind=bind)
    return socket.socket(fileno=listener)


def _listen(bind: str) -> socket.socket:
    host, _, port = bind.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.create_server(address[:2], family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        # create_server adds the address to its text; the numbers of getaddrinfo are its own.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise ConfigError(f"cannot listen on {bind}: {reason}", location="http.bind") from error
    listener.setblocking(False)
    if not ipaddress.ip_address(address[0]).is_loopback:
        hint = "any client that can connect can read the arguments of running jobs"
        log.warning("http.exposed", bind=bind, hint=hint)
    log.info("http.listening", bind=bind)
    return listener
