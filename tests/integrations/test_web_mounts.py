"""The dashboard below a prefix of another ASGI application."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.routing import Mount

from pyworkers import Client
from pyworkers.web import app
from tests.integrations.web import served
from tests.web.test_users import line
from tests.web.visitor import Visitor

KINDS = ("starlette", "fastapi", "nested")


def mounted(kind: str, dashboard: Starlette) -> tuple[Starlette, str]:
    """An application with the dashboard in it, and where. The lifespan of what is mounted does not run."""
    if kind == "fastapi":
        api = FastAPI()
        api.mount("/jobs", dashboard)
        return api, "jobs"
    if kind == "starlette":
        return Starlette(routes=[Mount("/jobs", dashboard)]), "jobs"
    inner = Starlette(routes=[Mount("/jobs", dashboard)])
    return Starlette(routes=[Mount("/in", inner)]), "in/jobs"


@pytest.mark.parametrize("kind", KINDS)
def test_links_forms_cookies_and_files_stay_below_the_prefix(
    kind: str, one_redis_url: str, namespace: str, tmp_path: Path
) -> None:
    with Client(one_redis_url, namespace=namespace) as client:
        client.enqueue("mail", "Send", [1])
    users = tmp_path / "users"
    users.write_text(line("ann", "operate"))
    application, place = mounted(kind, app(one_redis_url, namespace=namespace, auth=users))
    with served(application) as root:
        visitor = Visitor(f"{root}/{place}/")
        [form] = visitor.ask("queues").page.forms
        answer = visitor.ask(form.action, {**form.hidden, "name": "ann", "password": "secret"})
        assert answer.page.url == f"{root}/{place}/queues"
        assert {cookie.path for cookie in visitor.cookies} == {f"/{place}/"}
        [pause] = [form for form in answer.page.forms if form.buttons.get("action") == "pause"]
        page = visitor.press(pause)
        assert page.url.partition("?")[0] == f"{root}/{place}/queues"
        assert "mail is paused." in page.text
        inner = [link for link in page.links if not link.startswith(f"{root}/{place}/") and "#" not in link]
        assert inner == []
        [style] = [part for part in page.html.split('"') if part.endswith(".css")]
        assert visitor.ask(f"{root}{style}").status == 200
        assert visitor.ask("static/nothing").status == 404
        assert visitor.ask("api/queues").status == 200
        [leave] = [form for form in page.forms if form.action.endswith("/logout")]
        assert visitor.ask(leave.action, leave.hidden).page.url == f"{root}/{place}/login"


@pytest.mark.parametrize("kind", KINDS)
def test_the_application_says_who_may_look(kind: str, one_redis_url: str, namespace: str) -> None:
    async def authorize(request: Request) -> str | None:
        return request.headers.get("x-role")

    application, place = mounted(kind, app(one_redis_url, namespace=namespace, authorize=authorize))
    with served(application) as root:
        visitor = Visitor(f"{root}/{place}/")
        assert visitor.ask("queues").status == 403
        assert visitor.ask("queues", X_Role="read").status == 200
