"""The page of errors: its groups, those that are new, its links, what it does with all jobs of a group."""

from __future__ import annotations

import json
import time

import redis

from pyworkers.api.deploys import DeploySet
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.store.admin import Admin
from tests.helpers.records import raw_job
from tests.web.test_job_sets import press_all, settled
from tests.web.visitor import Visitor


def failed(error: str, number: int, at: float) -> bytes:
    return raw_job(f"{error}{number}", error_class=error, error_message=f"no {number}", failed_at=at)


def test_errors_are_grouped_and_all_jobs_of_one_are_deleted(
    dashboard: Visitor, db: redis.Redis, keys: Keys, one_redis_url: str, namespace: str
) -> None:
    assert "No errors: no job waits for a retry" in dashboard.get("errors").text
    DeploySet(Admin(RedisConfig(one_redis_url, namespace))).mark("v2 <i>")
    now = time.time()
    db.zadd(keys.retry, {failed("Old", number, now - 7200): now + 600 for number in range(3)})
    db.zadd(keys.retry, {failed("<b>", 1, now): now + 600, raw_job("none"): now})
    db.zadd(keys.dead, {failed("Old", 9, now - 9000): now})
    page = dashboard.get("errors")
    assert "Looked at 6 of 6 jobs" in page.text
    assert "Old: no # 4 3 1" in page.text
    assert page.html.count('"Versions"><bdi>v2 &lt;i&gt;</bdi></td>') == 2, "also of the job that died since"
    # Its one job has no other value that # would be for.
    assert "<b>: no 1 new 1 1 0" in page.text, "only an error that began after the deployment is new"
    assert "1 error on this page is new since the deployment v2 <i>" in page.text
    assert page.html.count("<bdi>&lt;b&gt;: no 1</bdi>") == 2, "in this sentence, too"
    posts = [form.action for form in page.posts]
    assert sum("retries?error_like=Old" in action for action in posts) == 1
    assert not any(action.endswith(("/retries", "/dead")) for action in posts), "each has its condition"
    path = next(link for link in page.links if "retries?error_like=Old" in link)
    path = f"retries{path.partition('retries')[2]}"
    settled(dashboard, press_all(dashboard, path, "all-delete"), "3 jobs")
    assert db.zcard(keys.retry) == 5, "it asks before"


def test_the_json_of_errors(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    now = time.time()
    db.zadd(keys.dead, {failed("Old", number, now - 4000): now - 3700 for number in range(3)})
    [group] = json.loads(dashboard.ask("api/errors").page.html)["errors"]
    assert (group["error"], group["count"], round(now - group["first"])) == ("Old: no #", 3, 4000)
    assert group["text"] == "Old: no #"
    assert group["hours"] == [*[0] * 22, 3, 0]
    db.zremrangebyrank(keys.dead, 0, 1)
    [group] = json.loads(dashboard.ask("api/errors").page.html)["errors"]
    assert (group["error"], group["text"]) == ("Old: no #", "Old: no 2")
