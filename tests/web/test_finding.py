"""Find: one box for all names and ids, on a page without JavaScript, as JSON, and in the palette."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
import redis

from contrib.pictures import shop
from pyworkers import Client
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from tests.helpers.records import raw_job
from tests.helpers.support import wait_for
from tests.integrations.web import served
from tests.web import hostile
from tests.web.programs import As
from tests.web.visitor import Visitor


def found(visitor: Visitor, text: str, *kinds: str) -> list[tuple[str, str]]:
    """What JSON finds of these kinds: names with the paths of their pages."""
    query = urlencode({"q": text}, errors="surrogateescape")
    rows: list[dict[str, Any]] = json.loads(visitor.get(f"api/find?{query}").html)
    return [(row["name"], row["href"]) for row in rows if row["kind"] in kinds]


@pytest.fixture
def evening(db: redis.Redis, keys: Keys, one_redis_url: str) -> None:
    shop.fill(db, keys, one_redis_url)


@pytest.mark.usefixtures("evening")
def test_names_are_found_by_a_part_of_them_and_each_leads_to_its_page(dashboard: Visitor) -> None:
    assert found(dashboard, "MAI", "queue")[0] == ("mail", "/queues/mail")
    assert ("Retries", "/retries") in found(dashboard, "retr", "page")
    # In the words of a person who does not know the name of the page.
    assert found(dashboard, "Undo", "page") == [("Audit", "/audit")]
    assert found(dashboard, "un", "page") == [("Running", "/running")]
    for kind, text in (("queue", "a"), ("class", "e"), ("server", "-"), ("page", "s")):
        names = found(dashboard, text, kind)
        assert names and len(names) <= max(8, 20 * (kind == "page"))
        for name, href in names:
            assert text in name.lower()
            dashboard.get(href)
    # Those that begin with the text come first.
    assert next(name for name, _ in found(dashboard, "s", "class")).lower().startswith("s")


@pytest.mark.usefixtures("evening")
def test_lists_are_searched_only_when_a_person_follows_the_link(dashboard: Visitor) -> None:
    searches = dict(found(dashboard, "smtp", "search"))
    assert searches["All jobs with the tag smtp"] == "/tags/smtp"
    assert searches["Batches with the tag smtp"] == "/batches?tag=smtp"
    assert searches["Finished of the class smtp"] == "/finished?class=smtp"
    assert [href for name, href in searches.items() if name.startswith("Queue ")] == [
        f"/queues/{queue}?text=smtp" for queue in ("images", "mail", "billing")
    ]
    assert searches["Dead whose error contains smtp"] == "/dead?error=smtp"
    assert "Found" in dashboard.get(searches["Dead whose error contains smtp"]).text
    page = dashboard.get("find?q=vip")
    assert {"/tags/vip", "/retries?error=vip", "/scheduled?text=vip"} <= {
        link.removeprefix(dashboard.root.rstrip("/")) for link in page.links
    }


@pytest.mark.usefixtures("evening")
def test_an_id_leads_to_its_job_or_its_batch(dashboard: Visitor) -> None:
    # The search of a job ends after 50 ms.
    wait_for(lambda: dashboard.get(f"find?q={shop.JOB}").path == f"/jobs/{shop.JOB}")
    assert dashboard.get("find?q=B4c0ffee").path == "/batches/B4c0ffee"
    unknown = "0123456789abcdef01234567"
    assert dashboard.get(f"find?q={unknown}").path == "/find"
    names = [name for name, _ in found(dashboard, unknown, "search")]
    assert names[0] == f"A job with the id {unknown}, in all places"
    # Another text is more often a tag or a part of a name.
    for text in ("vip", "tenant-acme"):
        names = [name for name, _ in found(dashboard, text, "search")]
        assert (names[0], names[-1]) == (
            f"All jobs with the tag {text}",
            f"A job with the id {text}, in all places",
        )


def test_without_a_text_there_are_the_pages_and_a_word_about_the_box(root: str, program: As) -> None:
    pages = {role: [row["name"] for row in program(role).get("/find")] for role in ("read", "operate")}
    assert set(pages["operate"]) - set(pages["read"]) == {"Enqueue"}
    assert program("enqueue").ask("GET", "/find").status == 403


@pytest.mark.parametrize("text", hostile.TEXTS[:10])
def test_hostile_names_stay_text(dashboard: Visitor, db: redis.Redis, keys: Keys, text: str) -> None:
    db.sadd(keys.queues, text)
    db.lpush(keys.queue(text), raw_job("j"))
    for name, href in found(dashboard, hostile.MARK, "queue"):
        assert hostile.MARK in name
        dashboard.get(href)
    assert f"<{hostile.MARK}" not in dashboard.get(f"find?{urlencode({'q': text})}").html


def test_all_redis_servers_are_asked_and_one_that_is_away_is_named(
    one_redis_url: str, second_redis_url: str, namespace: str
) -> None:
    there, away = RedisConfig(second_redis_url, namespace), RedisConfig("redis://127.0.0.1:1/0", namespace)
    with Client.from_config(there) as client:
        jid = client.enqueue("reports", "Report", [1])
    dashboard = app(one_redis_url, namespace=namespace, token="", others={"archive": there, "attic": away})
    with served(dashboard) as root:
        visitor = Visitor(f"{root}/")
        assert found(visitor, "repor", "queue") == [("reports", "/redis/archive/queues/reports")]
        wait_for(lambda: found(visitor, jid, "job") == [(jid, f"/redis/archive/jobs/{jid}")])
        assert [name for name, _ in found(visitor, "repor", "away")] == ["attic"]
