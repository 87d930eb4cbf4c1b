"""Each button of cron, limits, locks and batches, clicked in Chromium; its effect is in Redis."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import redis

from pyworkers import Client, Worker
from pyworkers.api import BatchSet, CronSet, LimitSet, LockSet, Queue
from pyworkers.config.cron_entries import dump
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.effects import CountMember
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import script
from pyworkers.store.flow.removal import written
from tests.helpers.support import wait_for
from tests.web.chromium import WIDE, Chromium
from tests.web.visitor import Visitor

Open = Callable[[str], Chromium]


# A form of each page is sent without scripts. What scripts do with any form, test_buttons.py looks at.
without_scripts = pytest.mark.parametrize("show", ["without"], indirect=True)
in_both_ways = pytest.mark.parametrize("show", ["with JavaScript", "without"], indirect=True)


@pytest.fixture
def show(request: pytest.FixtureRequest, chromium: Chromium, dashboard: Visitor) -> Open:
    """What opens a page in the browser."""
    if getattr(request, "param", "") == "without":
        chromium.forbid_scripts()

    def opened(path: str) -> Chromium:
        chromium.open(dashboard.root + path)
        return chromium

    return opened


@pytest.fixture
def cron(one_redis_url: str, namespace: str) -> CronSet:
    return CronSet(one_redis_url, namespace=namespace)


@pytest.fixture
def queue(one_redis_url: str, namespace: str) -> Queue:
    return Queue("night", one_redis_url, namespace=namespace)


def test_a_cron_entry_is_added_and_triggered(show: Open, cron: CronSet, queue: Queue) -> None:
    page = show("cron")
    fields = {"name": "sweep <1>", "class": "Sweep", "schedule": "@daily", "timezone": "Asia/Tokyo"}
    for name, value in (
        fields | {"queue": "night", "misfire": "skip", "args": '[7, {"deep": true}]'}
    ).items():
        page.enter(name, value)
    page.press("Add")
    [job] = cron
    entry = job.entry
    assert (entry.name, entry.job_class, entry.schedule) == ("sweep <1>", "Sweep", "@daily")
    assert (entry.timezone, entry.queue, entry.misfire) == ("Asia/Tokyo", "night", "skip")
    assert entry.args == (7, {"deep": True})
    page.press("Trigger now", row="sweep <1>")
    assert [(job.job_class, job.args) for job in queue] == [("Sweep", [7, {"deep": True}])]
    [run] = cron.find("sweep <1>").runs  # type: ignore[union-attr]
    page.press("job", row="sweep <1>")
    wait_for(lambda: page.run(f"return location.pathname.endsWith('/jobs/{run.jid}')"))
    text = "return document.querySelector('main')?.innerText || ''"
    wait_for(lambda: "waiting" in page.run(text), message="the job")


@without_scripts
def test_an_invalid_cron_entry_is_refused_with_the_reason(show: Open, cron: CronSet) -> None:
    page = show("cron")
    for name, value in (("name", "bad"), ("class", "Sweep"), ("schedule", "61 * * * *")):
        page.enter(name, value)
    page.press("Add")
    assert "61" in page.text_of(".flash.failed")
    assert list(cron) == []


@in_both_ways
def test_the_reason_above_a_refused_form_is_in_sight(show: Open, cron: CronSet) -> None:
    cron.add("sweep", "@daily", "Sweep")
    page = show("cron/sweep")
    page.resize(WIDE, 400)
    page.enter("schedule", "61 * * * *")
    page.press("Change")
    assert "61" in page.text_of("[role=alert]:focus")
    # The form is below it, perhaps out of sight: the browser scrolls as far as the page has arrived.
    place = "const reason = document.activeElement.getBoundingClientRect();"
    wait_for(lambda: page.run(f"{place} return 0 < reason.top && reason.bottom <= innerHeight"))


@in_both_ways
def test_a_cron_entry_is_paused_changed_and_removed_on_its_page(show: Open, cron: CronSet) -> None:
    cron.add("sweep", "@daily", "Sweep", [7], queue="night", timezone="Asia/Tokyo")
    page = show("cron/sweep")
    page.press("Pause")
    assert [job.state for job in cron] == ["paused"]
    page.press("Resume")
    assert [job.state for job in cron] == ["active"]
    page.enter("schedule", "@hourly")
    page.enter("timezone", "Europe/Paris")
    page.press("Change")
    [entry] = [job.entry for job in cron]
    assert (entry.schedule, entry.timezone, entry.queue, entry.args) == (
        "@hourly",
        "Europe/Paris",
        "night",
        (7,),
    )
    page.enter("args", "[8]")
    page.press("Change")
    assert [job.entry.args for job in cron] == [(8,)]
    page.press("Remove")
    assert list(cron) == []
    assert page.url.endswith("/cron")


def test_a_declared_cron_entry_is_triggered_but_neither_changed_nor_removed(
    show: Open, cron: CronSet, queue: Queue, db: redis.Redis, keys: Keys
) -> None:
    row = json.loads(dump(CronEntry("declared", "@daily", "night", "Sweep"))) | {"origin": "application"}
    db.hset(keys.owners, "server", "[]")
    db.set(keys.cron_declared("server"), json.dumps([row]))
    page = show("cron/declared")
    page.press("Pause")
    assert [job.state for job in cron] == ["paused"]
    # Also while it is paused.
    page.press("Trigger now")
    assert queue.size == 1
    assert page.texts("main button") == ["Resume", "Trigger now"]


@without_scripts
def test_a_slot_is_released_and_a_limit_with_all_its_values_reset(
    show: Open, db: redis.Redis, keys: Keys, one_redis_url: str, namespace: str
) -> None:
    db.hset(keys.limits, mapping={"tenant:7": "2 0", "tenant:8": "2 0", "other": "1 0"})
    for key in ("tenant:7", "tenant:8", "other"):
        db.zadd(keys.limit(key), {"web1:7:ab|aa j1": 1e9, "web1:7:ab|bb j2": 1e9})
    limits = LimitSet(one_redis_url, namespace=namespace)
    page = show("limits")
    page.press("tenant:7")
    page.press("Release", row="j1")
    view = limits.find("tenant:7")
    assert view is not None and [holder.jid for holder in view.holders] == ["j2"]
    page.press("Reset")
    assert [db.zcard(keys.limit(key)) for key in ("tenant:7", "tenant:8", "other")] == [0, 0, 2]


@without_scripts
def test_a_released_lock_lets_the_same_job_be_enqueued_again(
    show: Open, one_redis_url: str, namespace: str
) -> None:
    locks = LockSet(one_redis_url, namespace=namespace)
    with Client(one_redis_url, namespace=namespace) as client:
        jid, other = (client.enqueue("mail", name, unique_for=600) for name in ("Send", "Other"))
        page = show("locks")
        page.enter("text", jid)
        page.press("Find")
        assert other not in page.text
        assert client.enqueue("mail", "Send", unique_for=600) == jid
        page.press("Release", row=jid)
        assert [lock.jid for lock in locks] == [other]
        assert client.enqueue("mail", "Send", unique_for=600) != jid


@without_scripts
def test_members_of_a_batch_are_shown_by_state_and_it_is_deleted(
    show: Open, one_redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    worker, batches = Worker(one_redis_url, namespace=namespace), BatchSet(one_redis_url, namespace=namespace)

    @worker.job(queue="night")
    def member() -> None: ...

    with worker.batch("Sum <b>up</b>") as batch:
        waiting, failed, dead = (member.enqueue() for _ in range(3))
    for jid, state in ((failed, "failed"), (dead, "dead")):
        names, args = written(keys, [(1, CountMember(batch.id, jid, state))])
        batches._admin.run(script("removal/apply", names, args, lambda _: None, keys.namespace))
    page = show("batches")
    page.press(batch.id)
    # What is dead is shown first.
    for state, jid in (("dead", dead), ("failed", failed), ("waiting", waiting)):
        page.press(state)
        assert page.texts("main tbody th a") == [jid]
    page.press(waiting)
    # The search for the job goes on by itself, on a slow machine.
    heading = "return document.querySelector('h1')?.textContent || ''"
    wait_for(lambda: "member" in page.run(heading), message="the job")
    page = show(f"batches/{batch.id}")
    page.press("Delete the batch")
    assert list(batches) == []
    assert not db.exists(keys.batch(batch.id))
    # Its jobs stay.
    assert db.llen(keys.queue("night")) == 3
