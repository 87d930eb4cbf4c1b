"""The page of finished jobs and the log of a job: what they show, filter and hide."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from functools import partial
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
import redis

from pyworkers.api.browse.lookup import read_job
from pyworkers.api.finished import read_finished
from pyworkers.protocol.flow.finished import FinishedFacts, entry
from pyworkers.protocol.keeping import Keep
from pyworkers.protocol.keys import Keys
from pyworkers.web.pages import finished, job
from tests.helpers.records import raw_job
from tests.web.acting import act
from tests.web.test_one_job import found
from tests.web.visitor import Visitor


def keep(
    db: redis.Redis, keys: Keys, facts: FinishedFacts, fields: Mapping[str, Any], *, with_args: bool = True
) -> str:
    """Write a finished job; returns its ``at``."""
    data: Mapping[str, Any] = {"class": "Add", "args": [1], "queue": "q", **fields}
    effect = entry(Keep("server", 10, 60, with_args), facts, data, json.dumps(data).encode(), data["queue"])
    db.sadd(keys.finished, "server")
    written: Any = {"v": effect.entry}
    added: Any = db.xadd(keys.finished_jobs("server"), written)
    return f"{added.decode()} server"


def test_finished_jobs_are_shown_found_and_enqueued_again(
    dashboard: Visitor, db: redis.Redis, namespace: str
) -> None:
    keys = Keys(namespace)
    assert "keep = [1000, 86400]" in dashboard.get("finished").text
    now = time.time()
    secret = {"jid": "j1", "args": [{"token": "s3cr3t", "n": 7}]}
    at = keep(db, keys, FinishedFacts("done", now, 1.5, 2, "web1:7", 2048), secret)
    keep(db, keys, FinishedFacts("dead", now, error="ValueError: no"), {"jid": "j2", "class": "Other"})
    keep(db, keys, FinishedFacts("done", now), {"jid": "j3"}, with_args=False)
    page = dashboard.get("finished")
    assert '"n": 7' in page.text.replace('"n":7', '"n": 7')
    assert "s3cr3t" not in page.html
    assert "web1:7" in page.text and "ValueError: no" in page.text
    assert "jobs/j1" not in dashboard.get("finished?class=Other").html
    assert "ValueError" not in dashboard.get("finished?state=done&queue=q").text
    assert "meets the conditions" in dashboard.get("finished?jid=none").text
    assert "ValueError" in dashboard.get("finished?after=x").text
    assert "Enqueued again as " in act(dashboard, "finished", action="again", at=at.replace(" ", "~20"))
    assert db.llen(keys.queue("q")) == 1
    found = json.loads(dashboard.ask("api/finished?jid=j1").page.html)
    [one] = found["jobs"]
    assert (one["jid"], one["at"], one["args"][0]["n"]) == ("j1", at, 7)
    assert "s3cr3t" not in json.dumps(found)


def test_a_search_of_finished_jobs_goes_on_by_itself(
    dashboard: Visitor, db: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, now = Keys(namespace), time.time()
    keep(db, keys, FinishedFacts("done", now), {"jid": "old", "class": "Old"})
    for number in range(300):
        keep(db, keys, FinishedFacts("done", now), {"jid": f"j{number}"})
    monkeypatch.setattr(finished, "read_finished", partial(read_finished, budget_s=-1))
    page = dashboard.get("finished?class=Old")
    assert "None found so far, back to" in page.text and "Older" not in page.text
    [following] = re.findall(r'<meta http-equiv="refresh" content="1; url=/([^"]*)">', page.html)
    page = dashboard.get(unescape(following))
    assert "Old" in page.text and "refresh" not in page.html
    monkeypatch.undo()
    place = urlencode({"class": "None", "after": "1-1 server"})
    assert "There are no more." in dashboard.get(f"finished?{place}").text


def test_the_page_of_a_job_says_how_it_ended(dashboard: Visitor, db: redis.Redis, namespace: str) -> None:
    keys, jid, now = Keys(namespace), "0123456789abcdef", time.time()
    keep(db, keys, FinishedFacts("done", now, 1.5, 2, "web1:7"), {"jid": jid, "args": [{"to": "ann"}]})
    # Its id in the box on every page leads to it.
    assert dashboard.get(f"find?q={jid}").path == f"/jobs/{jid}"
    page = found(dashboard, f"jobs/{jid}")
    assert "There is no such job" not in page.text
    assert "State done Class Add Queue q" in page.text
    assert "How it ended" in page.text and "web1:7" in page.text and '"to":"ann"' in page.text
    # A job that runs again has its end to come.
    db.sadd(keys.queues, "q")
    db.lpush(keys.queue("q"), raw_job(jid, queue="q"))
    assert "How it ended" not in found(dashboard, f"jobs/{jid}").text


def test_the_end_of_a_job_is_shown_while_the_search_goes_on(
    dashboard: Visitor, db: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(db, Keys(namespace), FinishedFacts("done", time.time(), worker="web1:7"), {"jid": "j1"})
    monkeypatch.setattr(job, "read_job", partial(read_job, budget_s=-1))
    text = dashboard.get("jobs/j1").text
    assert "Not found so far" in text and "State unknown" in text
    assert "How it ended" in text and "web1:7" in text


def test_the_page_of_a_job_has_its_log(dashboard: Visitor, db: redis.Redis, namespace: str) -> None:
    log = Keys(namespace).log("j1")
    for line in ({"at": 1.5, "level": "error", "text": "sent <b>", "fields": {"n": 7}}, {"state": "done"}):
        db.xadd(log, {"v": json.dumps(line)})
    page = dashboard.get("jobs/j1")
    assert "sent <b>" in page.text and "n=7" in page.text
    assert "Log" in page.text
