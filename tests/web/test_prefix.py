"""The dashboard below a path: mounted, or behind a proxy that keeps the path or strips it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from pyworkers import Client
from pyworkers.api import Queue
from pyworkers.web import app
from pyworkers.web.prefixing import Prefixed
from tests.integrations.web import served
from tests.web.visitor import Visitor

TOKEN = "a-token-of-this-test"


def mounted(dashboard: Starlette) -> ASGIApp:
    return Starlette(routes=[Mount("/jobs", dashboard)])


def kept(dashboard: Starlette) -> ASGIApp:
    return Prefixed(dashboard, "/jobs", dashboard.routes)


def stripped(dashboard: Starlette) -> ASGIApp:
    inner = kept(dashboard)

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            assert scope["path"].startswith("/jobs/"), f"outside of the prefix: {scope['path']}"
            raw = scope["raw_path"].removeprefix(b"/jobs")
            scope = {**scope, "path": scope["path"].removeprefix("/jobs"), "raw_path": raw}
        await inner(scope, receive, send)

    return proxy


@pytest.mark.parametrize("way", [mounted, kept, stripped])
def test_all_that_the_dashboard_says_of_itself_is_below_the_prefix(
    one_redis_url: str, namespace: str, way: Any
) -> None:
    jid = Client(one_redis_url, namespace=namespace).enqueue("mail", "Mail", [1])
    dashboard = app(one_redis_url, namespace=namespace, token=TOKEN)
    with served(cast(Starlette, way(dashboard))) as root:
        visitor = Visitor(f"{root}/jobs/")
        page = visitor.get(f"?token={TOKEN}")
        assert page.url == visitor.root
        places = [urlsplit(link).path for link in page.links if link.startswith(root)]
        for place in (*places, "/jobs/queues/mail", f"/jobs/jobs/{jid}", f"/jobs/jobs?id={jid}"):
            assert place.startswith("/jobs/")
            found = visitor.get(place.removeprefix("/jobs/"))
            assert {urlsplit(form.action).path.split("/")[1] for form in found.forms} <= {"jobs"}, place
            assert 'src="/jobs/static/' in found.html or "/api" in place
        assert f"/jobs/jobs/{jid}" in found.url
        [form] = [form for form in visitor.get("queues").posts if "pause" in form.buttons.values()]
        visitor.press(form)
        assert Queue("mail", one_redis_url, namespace=namespace).paused
        assert {cookie.path for cookie in visitor.cookies} == {"/jobs/"}
        described = json.loads(visitor.get("api/openapi.json").html)
        assert described["servers"] == [{"url": "/jobs/api"}]


@pytest.mark.parametrize(
    ("prefix", "path", "query", "whole"),
    [
        ("/jobs", "/jobs", b"", "/jobs/"),
        ("/jobs", "/jobs", b"token=t", "/jobs/"),
        ("/jobs", "/jobs", b"id=1", "/jobs/jobs"),
        ("/jobs", "/jobs/", b"", "/jobs/"),
        ("/jobs", "/", b"", "/jobs/"),
        ("/jobs", "/jobs/0a1b", b"", "/jobs/jobs/0a1b"),
        ("/jobs", "/jobs/jobs/0a1b", b"", "/jobs/jobs/0a1b"),
        ("/jobs", "/jobs/api/queues", b"", "/jobs/api/queues"),
        ("/jobs", "/api/queues", b"", "/jobs/api/queues"),
        ("/jobs", "/jobsets", b"", "/jobs/jobsets"),
        ("/my/jobs", "/my/jobs/dead", b"page=2", "/my/jobs/dead"),
        ("/my/jobs", "/jobs/dead", b"page=2", "/my/jobs/jobs/dead"),
    ],
)
def test_the_path_of_a_page_tells_whether_it_has_the_prefix(
    prefix: str, path: str, query: bytes, whole: str
) -> None:
    found: list[Scope] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(scope)

    scope = {"type": "http", "path": path, "raw_path": path.encode(), "query_string": query}
    prefixed = Prefixed(inner, prefix, app(token="").routes)
    asyncio.run(prefixed(scope, cast(Any, None), cast(Any, None)))
    assert found == [{**scope, "root_path": prefix, "path": whole, "raw_path": whole.encode()}]
