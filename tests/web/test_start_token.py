"""A dashboard without users: the token of its start, from outside, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from pyworkers import Client
from pyworkers.api import Queue
from pyworkers.errors import ConfigError
from pyworkers.web import app
from tests.integrations.web import served
from tests.web.visitor import Visitor

PAUSE = {"action": "pause", "name": "mail"}
TOKEN = "token-of-the-start-of-a-test"


@pytest.fixture
def visitor(one_redis_url: str, namespace: str) -> Iterator[Visitor]:
    """A visitor who has not opened the address with the token; there is a queue ``mail``."""
    with Client(one_redis_url, namespace=namespace) as client:
        client.enqueue("mail", "Send", [1])
    with served(app(one_redis_url, namespace=namespace, token=TOKEN)) as root:
        yield Visitor(f"{root}/")


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("", {}),
        ("queues", {}),
        ("nonesuch", {}),
        ("api/queues", {}),
        ("events", {}),
        ("queues?token=", {}),
        ("queues?token=wrong", {}),
        ("queues?token=%F4%00", {}),
        ("queues", {"Authorization": "Bearer wrong"}),
        ("queues", {"Authorization": f"Basic {TOKEN}"}),
        # A proxy that sends the name of the dashboard as Host, and nothing of itself.
        ("queues", {"Connection": "close", "Origin": "", "Host": "127.0.0.1:7440"}),
    ],
)
def test_without_the_token_nothing_is_shown(visitor: Visitor, path: str, headers: dict[str, str]) -> None:
    answer = visitor.ask(path, None, follow=True, **headers)
    assert answer.status in (401, 403)
    assert "mail" not in answer.text and TOKEN not in answer.text
    assert visitor.ask("queues", PAUSE).status == 401
    assert visitor.ask(f"queues?token={TOKEN}", PAUSE).status == 401


def test_the_address_with_the_token_leads_to_the_page_and_is_kept_in_a_cookie(visitor: Visitor) -> None:
    page = visitor.get(f"queues?text=%F0%9F%90%87&token={TOKEN}&size=")
    assert page.url == f"{visitor.root}queues?text=%F0%9F%90%87&size="
    [kept] = [cookie for cookie in visitor.cookies if "start" in cookie.name]
    assert kept.has_nonstandard_attr("HttpOnly") and kept.path == "/" and kept.expires is None
    form = next(form for form in visitor.get("queues").posts if "pause" in form.buttons.values())
    assert "mail is paused." in visitor.press(form).text
    # Another site that knows the token of a form still sends its own name.
    assert visitor.ask("queues", form.hidden, follow=True, Origin="http://evil.example").status == 403


def test_no_address_with_the_token_leads_elsewhere(visitor: Visitor) -> None:
    answer = visitor.ask(f".//evil.example?token={TOKEN}", follow=False)
    assert answer.headers.get("location", "/") == "/evil.example"


def test_the_address_without_the_token_is_as_it_was_sent(visitor: Visitor) -> None:
    answer = visitor.ask(f"batches/a%2Fb%3F%23%5C?token={TOKEN}&text=x", follow=False)
    assert answer.headers.get("location") == "/batches/a%2Fb%3F%23%5C?text=x"


def test_a_program_sends_the_token_as_a_header_or_in_the_address(
    visitor: Visitor, one_redis_url: str, namespace: str
) -> None:
    assert "mail" in visitor.ask(f"api/queues?token={TOKEN}", follow=False).text
    assert "mail" in visitor.ask("api/queues", Authorization=f"Bearer {TOKEN}").text
    answer = visitor.ask("queues", PAUSE, Authorization=f"Bearer {TOKEN}")
    assert answer.status == 200
    assert Queue("mail", one_redis_url, namespace=namespace).paused


def test_a_mounted_dashboard_logs_its_address_when_a_viewer_of_this_machine_lacks_the_token(
    one_redis_url: str, namespace: str
) -> None:
    inner: Any = app(one_redis_url, namespace=namespace)

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        client = ("10.0.0.9", 1) if b"x-far" in headers else scope.get("client")
        await inner({**scope, "client": client}, receive, send)

    application = Starlette(routes=[Mount("/jobs", around)])
    with served(application) as root, capture_logs() as logs:
        visitor = Visitor(f"{root}/")
        assert visitor.ask("jobs/queues", X_Far="1").status == 403
        assert logs == []
        assert visitor.ask("jobs/queues").status == visitor.ask("jobs/queues").status == 401
        [line] = [line for line in logs if line["event"] == "web.token"]
        page = visitor.get(line["address"].lstrip("/"))
        assert page.url == f"{root}/jobs/"
        assert {cookie.path for cookie in visitor.cookies} == {"/jobs/"}
        assert visitor.ask("jobs/queues").status == 200


@pytest.mark.parametrize("token", ["a", "x" * 19])
def test_a_token_that_can_be_guessed_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="at least 20"):
        app(token=token)
