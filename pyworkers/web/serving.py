"""Serving: the dashboard in its own process, until a signal ends it. Used by ``pyworkers web``."""

from __future__ import annotations

import asyncio
import resource
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from pyworkers import logs
from pyworkers.api.target import admin_of
from pyworkers.api.webshared import read_web_secret
from pyworkers.config.checks import mask_url
from pyworkers.config.fields import Config
from pyworkers.config.stores import DEFAULT, Stores
from pyworkers.config.thresholds import Threshold
from pyworkers.errors import PyworkersError, StoreError
from pyworkers.http.connections import HEAD_BYTES, BoundedConnection
from pyworkers.http.hosts import Hosts
from pyworkers.web.application import assemble
from pyworkers.web.leaving import is_leaving
from pyworkers.web.listening import ListenAddress
from pyworkers.web.prefixing import Prefixed
from pyworkers.web.security.access import UNIX_SOCKET, Access, Local, Users, new_token
from pyworkers.web.site import Site, SiteSettings

# More than the thousand viewers that the dashboard is made for; each holds one open.
_MOST_CONNECTIONS = 1200
_SPARE_FILES = 64
# An action that has begun gets this time; event streams end at once.
_PATIENCE_S = 5
_CHECK_S = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Behind a proxy on the same machine, its headers say who asks and whether by HTTPS.
_PROXIES = ["127.0.0.1", "::1"]

log = logs.get_logger()


def serve(config: Config, *, with_token: bool = True, alarms: bool = False) -> None:
    """Serve the dashboard that ``[web]`` describes; returns when a signal has ended it.

    ``with_token``: without users, viewers need the token of this start, which the logged URL has.
    ``alarms``: send the alarms of the configuration as well.

    Raises ConfigError: the address is in use, or reachable from elsewhere without users.
    """
    logs.configure(config.log.level, config.log.format)
    place = ListenAddress.parse(config.web.bind, config.web.prefix)
    if not config.web.has_people:
        place.check_private()
    stores = Stores.of(config)
    thresholds = tuple(map(Threshold.parse, config.web.thresholds))
    settings = SiteSettings(config.web.mask, thresholds, config.encryption.keys, stores)
    sites = {
        name: Site(admin_of(redis), replace(settings, name=name)) for name, redis in stores.by_name.items()
    }
    site = sites[DEFAULT]
    token = new_token() if with_token and not config.web.has_people else ""
    dashboard = assemble(sites, _access(config, place, site, token), Hosts([*place.hosts, *config.web.hosts]))
    with place.listening(private=not config.web.has_people) as listeners:
        users = " and ".join(filter(None, (config.web.auth, config.web.oidc.issuer)))
        url = place.url_with(token)
        log.info("web.listening", url=url, users=users or "none: this machine alone")
        if token and config.log.level not in ("debug", "info"):
            print(f"The dashboard listens at {url}", file=sys.stderr, flush=True)
        with _watching(config if alarms else None):
            _DashboardServer(dashboard, site, place, mask_url(config.redis.url)).run(listeners)


@contextmanager
def _watching(config: Config | None) -> Iterator[None]:
    """Send the alarms of this configuration in a thread. Raises ConfigError if it has none."""
    stop = threading.Event()
    if config is not None:
        # Imported here, because it brings the clients of HTTP and mail.
        from pyworkers.alarms.watching import Watcher

        watcher = Watcher(config)
        threading.Thread(target=watcher.run, args=(stop,), name="alarms", daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def _access(config: Config, place: ListenAddress, site: Site, token: str) -> Access:
    if config.web.has_people:
        return Users.of(config.web.auth or None, config.web.oidc, site)
    return Local(token, by_socket=place.path is not None)


def _connection() -> type[BoundedConnection]:
    """The class of this server's connections: as many as the limit of open files allows."""

    class DashboardConnection(BoundedConnection):
        most = min(_MOST_CONNECTIONS, max(1, _allowed_files() - _SPARE_FILES))

        def on_response_complete(self) -> None:
            """Close a connection that came with the stop: its next request would keep the server."""
            super().on_response_complete()
            if is_leaving() and not self.transport.is_closing():
                self.shutdown()

    return DashboardConnection


def _allowed_files() -> int:
    """The limit of open files, which is raised: the usual one is 1024."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ValueError, OSError):  # macOS refuses "infinity"
        log.debug("web.file_limit_kept")
        most = limit
    return _MOST_CONNECTIONS + _SPARE_FILES if most == resource.RLIM_INFINITY else most


class _OnSocket:
    """Gives the peer of a Unix socket a name, by which the headers of a proxy are read as on TCP.

    Trust in every address would take the first one in ``X-Forwarded-For``, which the client writes; the last
    one is the proxy's.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app: Any = ProxyHeadersMiddleware(cast(Any, app), [*_PROXIES, UNIX_SOCKET])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "client": (UNIX_SOCKET, 0)}, receive, send)


class _DashboardServer(uvicorn.Server):
    def __init__(self, dashboard: Starlette, site: Site, place: ListenAddress, redis: str) -> None:
        prefix = place.prefix
        app: ASGIApp = Prefixed(dashboard, prefix, dashboard.routes) if prefix else dashboard
        self._site = site
        self._redis = redis
        config = uvicorn.Config(
            _OnSocket(app) if place.path else app,
            http=_connection(),
            h11_max_incomplete_event_size=HEAD_BYTES,
            ws="none",
            lifespan="on",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=place.path is None,
            forwarded_allow_ips=_PROXIES,
            server_header=False,
            timeout_graceful_shutdown=_PATIENCE_S,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; then say so if Redis does not answer: the pages do until it does."""
        await super().startup(sockets)
        try:
            # A user who only reads may not keep the secret.
            with suppress(StoreError):
                async with asyncio.timeout(_CHECK_S):
                    await self._site.read(read_web_secret(self._site.keys, secrets.token_bytes()))
        except (PyworkersError, TimeoutError) as error:
            log.warning("redis.down", url=self._redis, error=str(error) or "no answer")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, which sends itself the signal again at the end, and dies of it."""
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
