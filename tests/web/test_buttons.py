"""Buttons of a row, of selected jobs and of all jobs, clicked in Chromium; their effect is in Redis."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
import redis

from contrib.pictures import shop
from pyworkers.api import DeadSet, Queue, RetrySet, ScheduledSet
from pyworkers.api.target import Admin
from pyworkers.protocol.keys import Keys
from tests.helpers.support import wait_for
from tests.web.chromium import Open


def test_a_waiting_job_runs_first_or_is_deleted(show: Open, admin: Admin) -> None:
    queue = Queue("ledger", admin)
    newest, middle, _ = (job.jid for job in queue)
    page = show("queues/ledger")
    page.press("Run first", row=newest)
    assert [job.jid for job in queue][-1] == newest
    page.press("Delete", row=middle)
    assert middle not in [job.jid for job in queue]


def test_all_jobs_of_a_page_are_selected(show: Open, admin: Admin) -> None:
    page = show("queues/ledger")
    [all_jobs] = page.all("label.all input")
    assert all_jobs.is_displayed()
    all_jobs.click()
    page.press("Kill")
    assert Queue("ledger", admin).size == 0


def test_selected_waiting_jobs_are_killed(show: Open, admin: Admin) -> None:
    [first, second, third] = [job.jid for job in Queue("ledger", admin)]
    page = show("queues/ledger")
    page.tick(first)
    page.tick(third)
    page.press("Kill")
    assert [job.jid for job in Queue("ledger", admin)] == [second]
    assert {first, third} <= {job.jid for job in DeadSet(admin)}


def test_a_retry_runs_now_is_moved_killed_or_deleted(show: Open, admin: Admin) -> None:
    now, later, killed, gone = [entry.jid for entry in RetrySet(admin)][:4]
    page = show("retries")
    page.press("Run now", row=now)
    assert any(Queue(name, admin).find_job(now) for name in shop.QUEUES)
    page.press("Delete", row=gone)
    score = {entry.jid: entry.score for entry in RetrySet(admin)}[later]
    page.tick(later)
    page.press("Reschedule")
    assert {entry.jid: entry.score for entry in RetrySet(admin)}[later] != score
    page.tick(killed)
    page.press("Kill")
    assert killed in [entry.jid for entry in DeadSet(admin)]
    assert not {now, killed, gone} & {entry.jid for entry in RetrySet(admin)}


def test_all_that_a_filter_finds_are_counted_asked_about_and_deleted(show: Open, admin: Admin) -> None:
    before = RetrySet(admin).size
    page = show("retries?class=SendReceipt")
    page.press("Delete all …")
    page.press("Delete: 11 jobs")
    wait_for(lambda: RetrySet(admin).size == before - 11, message=page.text)
    assert "SendReceipt" not in [entry.job_class for entry in RetrySet(admin)]


def test_dead_and_scheduled_jobs_run_now(show: Open, admin: Admin) -> None:
    for page, jobs in (("dead", DeadSet(admin)), ("scheduled", ScheduledSet(admin))):
        jid, size = next(iter(jobs)).jid, jobs.size
        show(page).press("Run now", row=jid)
        assert jobs.size == size - 1
        assert Queue("mail", admin).find_job(jid)


def test_a_running_job_is_cancelled(show: Open, admin: Admin, db: redis.Redis, keys: Keys) -> None:
    page = show("running")
    jid = str(page.all("main tbody .copy")[0].get_attribute("data-copy"))
    page.press("Cancel", row=jid)
    assert jid.encode() in db.zrange(keys.cancelled, 0, -1)


def test_a_job_that_has_gone_meanwhile_is_said_to_be_gone(show: Open, admin: Admin) -> None:
    page = show("dead")
    [entry] = [entry for entry in DeadSet(admin) if entry.jid == shop.JOB]
    assert entry.delete()
    page.press("Run now", row=shop.JOB)
    assert page.is_shown(".flash.failed")


@pytest.mark.parametrize("path", ["scheduled", "jobs/{jid}?in=scheduled"])
@pytest.mark.parametrize("zone", ["Asia/Kolkata", "UTC"])
def test_a_job_gets_a_time_in_the_zone_of_the_viewer(show: Open, admin: Admin, path: str, zone: str) -> None:
    jid = next(iter(ScheduledSet(admin))).jid
    show("").live_in(zone)
    page = show(path.format(jid=jid))
    # Chromium has the old name of the zone. The search for the job goes on by itself, on a slow machine.
    named = f"or at ({zone.replace('Kolkata', 'Calcutta')})"
    wait_for(lambda: named in page.run("return document.body?.textContent || ''"), message=named)
    field = ".selection [name=when]" if path == "scheduled" else "[name=when]"
    page.run("document.querySelector(arguments[0]).value = '2035-07-01T12:00'", field)
    if path == "scheduled":
        page.tick(jid)
    page.press("Reschedule")
    [entry] = [entry for entry in ScheduledSet(admin) if entry.jid == jid]
    assert entry.score == datetime(2035, 7, 1, 12, tzinfo=ZoneInfo(zone)).timestamp()
