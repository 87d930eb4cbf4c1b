"""A dashboard in the server of another program: its connections, and the clients of a Unix socket."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from pyworkers.web import app
from tests.helpers.redises import OwnRedis
from tests.helpers.support import wait_for
from tests.integrations.web import served
from tests.web.visitor import Visitor


@pytest.mark.parametrize("mounted", [False, True])
def test_the_end_of_the_server_closes_the_connections(own_redis: OwnRedis, mounted: bool) -> None:
    dashboard = app(own_redis.url, token="")
    # The lifespan of what is mounted does not run.
    application = Starlette(routes=[Mount("/jobs", dashboard)]) if mounted else dashboard
    with own_redis.client() as client:

        def connections() -> int:
            return len(client.client_list())

        own = connections()
        for _ in range(2):
            with served(application) as root:
                assert Visitor(f"{root}/{'jobs/' if mounted else ''}").get("queues")
                assert connections() > own
            wait_for(lambda: connections() == own, message="they are closed")


@contextmanager
def on_a_unix_socket(dashboard: Starlette, path: Path) -> Iterator[None]:
    """Serve it as ``uvicorn --uds`` does, which names no client."""
    server = uvicorn.Server(uvicorn.Config(dashboard, uds=str(path), log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield
    finally:
        server.should_exit = True
        thread.join()


def status(path: Path, **headers: str) -> int:
    """The status of a page that a client of this socket asks for."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    try:
        connection.request("GET", "/queues", headers={"Connection": "close", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_client_without_an_address_is_not_of_this_machine(
    one_redis_url: str, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    with on_a_unix_socket(app(one_redis_url, namespace=namespace, token=""), path):
        # A proxy that connects there may serve anyone.
        assert status(path) == 403


def test_the_function_of_an_application_decides_for_a_client_without_an_address(
    one_redis_url: str, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    inner = app(one_redis_url, namespace=namespace, authorize=lambda request: request.headers.get("x-role"))
    with on_a_unix_socket(inner, path):
        assert status(path) == 403
        assert status(path, **{"X-Role": "read"}) == 200
