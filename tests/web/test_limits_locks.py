"""The pages of limits and locks: use, holders, release, and names of any kind."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urljoin

import pytest
import redis

from pyworkers import Client
from pyworkers.api import LimitSet, LockSet
from pyworkers.protocol.keys import Keys
from pyworkers.store.flow import locks as stored
from pyworkers.web.names import encode as segment
from tests.web.acting import act, fields
from tests.web.visitor import Visitor

HOSTILE = (b"a/b", b"..", b"<script>alert(1)</script>", "\u202egnp".encode(), b"\xff\xfe", b"a\nb", b" ")


def key_of(name: str, text: str) -> bytes:
    return (name + text).encode(errors="surrogateescape")


def test_an_empty_redis(dashboard: Visitor) -> None:
    assert "There are no limits" in dashboard.get("limits").text
    assert "There are no locks" in dashboard.get("locks").text
    assert "not in use" in dashboard.get("limits/none").text


def test_no_locks_among_many_keys(dashboard: Visitor, db: redis.Redis, namespace: str) -> None:
    db.mset({f"{namespace}key{number}": "" for number in range(3_000)})
    assert "There are no locks: " in dashboard.get("locks").text
    assert "There are no more locks." in dashboard.get("locks?cursor=1").text


def test_a_slot_is_released_and_a_limit_reset(
    dashboard: Visitor, db: redis.Redis, one_redis_url: str, namespace: str
) -> None:
    keys = Keys(namespace)
    db.hset(keys.limits, mapping={"tenant:7": "2 0.0", "tenant:8": "2 0.0", "rate": "10 60.004"})
    for key in ("tenant:7", "tenant:8", "rate"):
        db.zadd(keys.limit(key), {"web1:7:ab|aa j1": 1e9, "web1:7:ab|bb j2": 1e9})
    page = dashboard.get("limits")
    assert "2 at once" in page.text and "10 in 1m" in page.text
    page = dashboard.get("limits/tenant~3A7")
    assert urljoin(dashboard.root, "jobs/j1") in page.links
    assert any("servers/web1~3A7~3Aab" in link for link in page.links)
    member = segment("web1:7:ab|aa j1")
    [release] = [form for form in page.posts if form.hidden.get("member") == member]
    assert "A slot of" in dashboard.press(release).text
    assert "free already" in dashboard.press(release).text
    view = LimitSet(one_redis_url, namespace=namespace).find("tenant:7")
    assert view is not None and [holder.jid for holder in view.holders] == ["j2"]
    [reset] = [form for form in page.posts if "reset" in form.buttons.values()]
    assert "tenant is reset." in dashboard.press(reset).text
    assert [db.zcard(keys.limit(key)) for key in ("tenant:7", "tenant:8", "rate")] == [0, 0, 2]
    assert "tenant is not in use." in dashboard.press(reset).text
    assert dashboard.ask("limits/rate", fields(dashboard, action="x")).status == 400


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_of_limits(dashboard: Visitor, db: redis.Redis, namespace: str, name: bytes) -> None:
    keys, text = Keys(namespace), name.decode(errors="surrogateescape")
    db.hset(keys.limits, name, "5 0.0")
    db.hset(keys.limits, b"running/" + name, "5 0.0")
    db.zadd(key_of(keys.limit(""), text), {name + b"|" + name: "-inf", b"none": 1e300})
    page = dashboard.get("limits")
    assert "<script>alert" not in page.html and "\u202e" not in page.html
    for path in (f"limits/{segment(text)}", f"limits/{segment('running/' + text)}"):
        assert urljoin(dashboard.root, path) in page.links
        assert "Holders" in dashboard.get(path).text
    member = segment(f"{text}|{text}")
    assert "A slot of" in act(dashboard, f"limits/{segment(text)}", action="release", member=member)


def test_a_lock_is_found_and_released(dashboard: Visitor, one_redis_url: str, namespace: str) -> None:
    with Client(one_redis_url, namespace=namespace) as client:
        jid = client.enqueue("mail", "Send", [1], unique_for=60)
        other = client.enqueue("mail", "Other", [1], unique_for=60)
    page = dashboard.get("locks")
    assert {urljoin(dashboard.root, f"jobs/{name}") for name in (jid, other)} <= set(page.links)
    assert jid not in dashboard.get(f"locks?text={other}").html
    assert "No lock fits." in dashboard.get("locks?text=nothing").text
    locks = LockSet(one_redis_url, namespace=namespace)
    [lock] = locks.find(jid)
    assert "is not held, or another job holds it." in act(
        dashboard, "locks", action="release", key=segment(lock.key), jid="x"
    )
    [release] = [form for form in page.posts if form.hidden.get("jid") == segment(jid)]
    assert "is released from" in dashboard.press(release).text
    assert "is not held" in dashboard.press(release).text
    assert locks.find(jid) == []
    assert dashboard.ask("locks", fields(dashboard, action="x")).status == 400


def test_a_search_of_locks_goes_on_by_itself(
    dashboard: Visitor, db: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.mset({f"{namespace}{number}": "x" for number in range(500)})
    monkeypatch.setattr(stored, "_PER_SCAN", 1)
    monkeypatch.setattr(stored, "_PER_PAGE", 1)
    page = dashboard.get("locks?text=nothing")
    assert "None found so far. Search on Stop" in page.text
    [following] = re.findall(r'<meta http-equiv="refresh" content="1; url=/([^"]*)">', page.html)
    assert "refresh" not in dashboard.get("locks").html, "Stop leads there"
    monkeypatch.undo()
    for _ in range(100):
        # Other tests have keys in this Redis, too.
        page = dashboard.get(unescape(following))
        if not (found := re.findall(r'http-equiv="refresh" content="1; url=/([^"]*)"', page.html)):
            break
        [following] = found
    assert "No lock fits." in page.text and "refresh" not in page.html


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_of_locks(dashboard: Visitor, db: redis.Redis, namespace: str, name: bytes) -> None:
    keys, text = Keys(namespace), name.decode(errors="surrogateescape")
    db.set(key_of(keys.unique(""), text), name)
    db.set(key_of(keys.unique(""), f"{text}|{text}|{text}"), b"x" * 100_000)
    db.lpush(keys.unique("list"), "x")
    page = dashboard.get("locks")
    assert "<script>alert" not in page.html and "\u202e" not in page.html
    assert "x" * 1000 not in page.text
    assert "is released from" in act(
        dashboard, "locks", action="release", key=segment(text), jid=segment(text)
    )


def test_many_locks_page_by_page(dashboard: Visitor, db: redis.Redis, namespace: str) -> None:
    keys = Keys(namespace)
    pipe = db.pipeline()
    for number in range(500):
        pipe.set(keys.unique(f"Add|q|{number}"), f"j{number}")
    pipe.execute()
    page, found = dashboard.get("locks?cursor=x&scanned=99999999999999999999999"), set()
    while True:
        found |= {link for link in page.links if "/jobs/" in link}
        following = [link for link in page.links if "cursor=" in link and "#" not in link]
        if not following:
            break
        page = dashboard.get(following[0].removeprefix(dashboard.root))
    assert len(found) == 500
    assert "that was all" in page.text
