"""The forms of cron, sent by Chromium with and without scripts; their effect is in Redis."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyworkers.api import CronSet, Queue
from tests.helpers.support import wait_for
from tests.web.chromium import WIDE, Chromium
from tests.web.visitor import Visitor

Open = Callable[[str], Chromium]


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
