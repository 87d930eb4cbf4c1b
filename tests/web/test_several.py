"""The dashboard of a program with two real Redis servers: each has all pages, and the overview has both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from pyworkers import Client
from pyworkers.api import AuditLog, Queue
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import ConfigError, RedisUnavailableError
from pyworkers.store.calls import Steps
from pyworkers.web import app
from pyworkers.web.several import RedisRow, Sites
from tests.integrations.web import served
from tests.web.test_queues import form_of, rows_of
from tests.web.visitor import Visitor

TOKEN = "a-token-of-this-test"


@pytest.fixture
def archive(second_redis_url: str, namespace: str) -> RedisConfig:
    return RedisConfig(second_redis_url, namespace)


def dashboard_of(url: str, namespace: str, archive: RedisConfig) -> Starlette:
    return app(url, namespace=namespace, token=TOKEN, others={"archive": archive})


@pytest.fixture(params=["", "/jobs"], ids=["alone", "mounted"])
def visitor(
    request: pytest.FixtureRequest, one_redis_url: str, namespace: str, archive: RedisConfig
) -> Iterator[Visitor]:
    dashboard = dashboard_of(one_redis_url, namespace, archive)
    whole = Starlette(routes=[Mount(request.param, dashboard)]) if request.param else dashboard
    with served(whole) as root:
        found = Visitor(f"{root}{request.param}/")
        # With the token, at the page of the other one: the cookie is for both.
        found.get(f"redis/archive/?token={TOKEN}")
        yield found


def read(visitor: Visitor, path: str) -> Any:
    return json.loads(visitor.get(path).html)


def test_each_redis_has_its_pages_and_actions_stay_there(
    visitor: Visitor, one_redis_url: str, namespace: str, archive: RedisConfig
) -> None:
    with Client(one_redis_url, namespace=namespace) as here, Client.from_config(archive) as there:
        here.enqueue("mail", "Send", [1])
        jid = there.enqueue("reports", "Report", [1])
    page = visitor.get("")
    assert [row[:2] for row in rows_of(page) if row and row[0] in ("default", "archive")] == [
        ["default", "1"],
        ["archive", "1"],
    ]
    both = visitor.get("queues")
    assert [(row[0], row[1]) for row in rows_of(both)[1:]] == [("mail", "default"), ("reports", "archive")]
    queues = visitor.get("redis/archive/queues")
    assert "reports" in queues.text and "mail" not in queues.text
    assert {link.split("?")[0].rpartition("/")[0] for link in queues.links if "reports" in link} == {
        f"{visitor.root}redis/archive/queues"
    }
    # The same list of the other one is a step away.
    assert f"{visitor.root}queues" in queues.links and f"{visitor.root}redis/archive/queues" in queues.links
    paused = visitor.press(form_of(queues, "pause"))
    assert "reports is paused." in paused.text and paused.url.startswith(
        f"{visitor.root}redis/archive/queues"
    )
    assert Queue("reports", archive).paused
    assert [action.target for action in AuditLog(archive).page().actions] == ["reports"]
    assert AuditLog(one_redis_url, namespace=namespace).page().actions == []
    # The box finds a job in any of them.
    assert visitor.get(f"jobs?id={jid}").url == f"{visitor.root}redis/archive/jobs/{jid}"
    assert visitor.get(f"redis/archive/jobs?id={jid}").url == f"{visitor.root}redis/archive/jobs/{jid}"


def test_programs_ask_each_of_them(visitor: Visitor, archive: RedisConfig) -> None:
    with Client.from_config(archive) as there:
        there.enqueue("reports", "Report", [1])
    assert [row["redis"] for row in read(visitor, "api/redis")] == ["default", "archive"]
    assert [row["enqueued"] for row in read(visitor, "api/redis")] == [0, 1]
    assert [queue["name"] for queue in read(visitor, "redis/archive/api/queues")] == ["reports"]
    both = read(visitor, "api/queues")
    assert [(queue["redis"], queue["name"]) for queue in both["queues"]] == [("archive", "reports")]
    assert "/redis" in read(visitor, "api/openapi.json")["paths"]
    assert visitor.ask("redis/attic/queues").status == 404
    unknown = visitor.ask("redis/attic/api/queues")
    assert unknown.status == 404
    assert json.loads(unknown.text) == {
        "error": "There is no Redis with this name: known are default, archive."
    }


def test_all_that_are_lost_while_the_overview_is_made(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Sites.rows

    async def lost(sites: Sites, request: Request) -> list[RedisRow]:
        found = await rows(sites, request)
        for site in sites.by_name.values():
            with suppress(RedisUnavailableError):
                await site.read(_lost())
        return found

    monkeypatch.setattr(Sites, "rows", lost)
    page = visitor.get("")
    assert [row[:1] for row in rows_of(page) if row and row[0] in ("default", "archive")] == [
        ["default"],
        ["archive"],
    ]


def _lost() -> Steps[None]:
    """What a read does whose connection breaks."""
    raise RedisUnavailableError("the connection was lost")
    yield


def test_one_that_is_away_is_named_and_the_others_have_their_pages(
    one_redis_url: str, namespace: str
) -> None:
    away = RedisConfig("redis://127.0.0.1:1/0", namespace)
    with Client(one_redis_url, namespace=namespace) as here:
        jid = here.enqueue("mail", "Send", [1])
    with served(dashboard_of(one_redis_url, namespace, away)) as root:
        visitor = Visitor(f"{root}/")
        page = visitor.get(f"?token={TOKEN}")
        queues = visitor.get("queues")
        assert "Redis archive is unreachable: " in queues.text
        assert [row[:2] for row in rows_of(queues)[1:]] == [["mail", "default"]]
        [row] = [row for row in rows_of(page) if row and row[0] == "archive"]
        assert row[1].startswith("away: ")
        assert read(visitor, "api/redis")[1]["error"]
        listed = read(visitor, "api/queues")
        assert [queue["name"] for queue in listed["queues"]] == ["mail"]
        assert "Redis cannot be reached" in listed["away"]["archive"]
        assert visitor.ask("redis/archive/queues").status == 503
        assert visitor.get(f"jobs?id={jid}").url == f"{visitor.root}jobs/{jid}"
        unknown = visitor.ask("jobs?id=nowhere")
        assert (unknown.status, "the Redis archive is unreachable" in unknown.text) == (503, True)
        assert "Redis does not answer" in unknown.text


def test_with_one_redis_nothing_shows_that_there_could_be_more(dashboard: Visitor) -> None:
    assert 'aria-label="Redis"' not in dashboard.get("").html
    assert dashboard.ask("api/redis").status == dashboard.ask("redis/default/queues").status == 404
    assert "/redis" not in read(dashboard, "api/openapi.json")["paths"]


def test_a_mounted_dashboard_has_those_of_the_configuration(
    one_redis_url: str, archive: RedisConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = f'[redis]\nurl = "{one_redis_url}"\n[redis.archive]\nurl = "{archive.url}"\n'
    (tmp_path / "workers.toml").write_text(tables)
    monkeypatch.setenv("PYWORKERS_CONFIG", str(tmp_path / "workers.toml"))
    for name in ("REDIS_URL", "PYWORKERS_REDIS__URL", "PYWORKERS_REDIS__NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    assert list(app().state.sites.by_name) == ["default", "archive"]
    assert list(app(one_redis_url).state.sites.by_name) == ["default"]


def test_a_name_that_the_configuration_refuses_is_refused(one_redis_url: str) -> None:
    with pytest.raises(ConfigError, match="others"):
        app(one_redis_url, others={"a/b": one_redis_url})


def test_a_queue_in_two_is_at_the_redis_of_the_configuration(
    one_redis_url: str, second_redis_url: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dashboard is mounted: the environment names the file."""
    for url in (one_redis_url, second_redis_url):
        with Client(url, namespace=namespace) as client:
            client.enqueue("reports", "Report", [1])
            client.enqueue("mail", "Send", [1])
    file = tmp_path / "workers.toml"
    file.write_text(
        f"""
        [redis]
        url = "{one_redis_url}"
        namespace = "{namespace}"
        [redis.archive]
        url = "{second_redis_url}"
        namespace = "{namespace}"
        [queues.reports]
        redis = "archive"
        """
    )
    for name in ("REDIS_URL", "PYWORKERS_REDIS__URL", "PYWORKERS_REDIS__NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYWORKERS_CONFIG", str(file))
    with served(app(token="")) as root:
        found = Visitor(f"{root}/")
        assert found.get("queues/reports").path == "/redis/archive/queues/reports"
        assert found.get("queues/mail").path == "/queues/mail"
        assert json.loads(found.get("api/queues/reports").html)["name"] == "reports"
