"""Sidekiq's real Web UI, read over HTTP: pyworkers' jobs are on its pages, and its buttons work on them."""

from __future__ import annotations

from pathlib import Path

import redis

from pyworkers import Client
from tests.helpers.support import PATIENCE_S, wait_for
from tests.interop.browser import Browser, Form, Page
from tests.interop.programs import only, pyworkers


def details(browser: Browser, page: Page, jid: str) -> Page:
    """The page of one job, by its link on a list."""
    [link] = {link for link in page.links if link.endswith(jid)}
    return browser.get(link)


def test_the_retries_page_shows_and_retries_a_job(
    browser: Browser, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = Client(url).enqueue(
        "python", "FailOnce", [1, "<b>ä"], retry=True, tags=["vip"], backtrace=True, extra={"note": "extra"}
    )
    with pyworkers(tmp_path / "python", url) as server:
        only(db, "retry")
        page = browser.get("retries")
        assert 'python FailOnce vip 1, "<b>ä" ValueError: python failed' in page.text
        shown = details(browser, page, jid)
        assert jid in shown.text
        assert "ValueError Error Message python failed Error Backtrace" in shown.text
        assert "/tasks.py:" in shown.text
        assert '{"note"=>"extra"' in shown.text
        browser.press(shown.form(shown.path), "retry")
        # The button takes one from retry_count, which was 0: so this counts as the first attempt, and fails.
        server.wait_for_notes(2, jid, timeout=PATIENCE_S)
        only(db, "retry", retry_count=0)


def test_the_retries_page_kills_and_deletes(
    browser: Browser, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    kill, delete, stay = (Client(url).enqueue("python", "Fail", [n], retry=True) for n in range(3))
    with pyworkers(tmp_path / "python", url) as server:
        wait_for(lambda: db.zcard("retry") == 3, PATIENCE_S, "three retries")
        server.stop()
    page = browser.get("retries")
    page = browser.press(page.form("/retries"), "kill", tick=kill)
    page = browser.press(page.form("/retries"), "delete", tick=delete)
    assert only(db, "retry")["jid"] == stay
    assert only(db, "dead", error_message="python failed")["jid"] == kill


def test_retry_all_runs_every_job_again(browser: Browser, url: str, db: redis.Redis, tmp_path: Path) -> None:
    jids = [Client(url).enqueue("python", "Fail", [n], retry=True) for n in range(3)]
    with pyworkers(tmp_path / "python", url) as server:
        wait_for(lambda: db.zcard("retry") == 3, PATIENCE_S, "three retries")
        page = browser.get("retries")
        browser.press(page.form("/retries/all/retry"))
        for jid in jids:
            server.wait_for_notes(2, jid, timeout=PATIENCE_S)


def test_the_scheduled_page_adds_to_the_queue_and_deletes(
    browser: Browser, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    client = Client(url)
    now, never = (client.enqueue_in(3600, "python", "Note", [n]) for n in ("now", "never"))
    page = browser.get("scheduled")
    assert 'python Note "now"' in page.text
    page = browser.press(page.form("/scheduled"), "delete", tick=never)
    shown = details(browser, page, now)
    assert "not yet enqueued" in shown.text.lower()
    browser.press(shown.form(shown.path), "add_to_queue")
    with pyworkers(tmp_path / "python", url) as server:
        [[_, jid, *_]] = server.wait_for_notes(1, timeout=PATIENCE_S)
    assert jid == now
    assert not db.exists("schedule")


def test_the_dead_page_shows_retries_and_deletes(
    browser: Browser, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    again, gone = (Client(url).enqueue("mail", "send_mail", [name], retry=0) for name in ("ada", "bob"))
    with pyworkers(tmp_path / "python", url) as server:
        wait_for(lambda: db.zcard("dead") == 2, PATIENCE_S, "two dead jobs")
        page = browser.get("morgue")
        assert 'mail send_mail "ada" ConnectionError: no route to ada' in page.text
        shown = details(browser, page, again)
        assert "/tasks.py:" in shown.text
        browser.press(shown.form(shown.path), "retry")
        server.wait_for_event("job.failed", count=3, timeout=PATIENCE_S)
        wait_for(lambda: db.zcard("dead") == 2, PATIENCE_S, "dead again")
    page = browser.get("morgue")
    browser.press(page.form("/morgue"), "delete", tick=gone)
    assert only(db, "dead")["jid"] == again


def test_the_dead_page_shows_a_job_that_killed_its_workers_and_bytes_that_are_no_job(
    browser: Browser, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = Client(url).enqueue("python", "Crash", [1])
    db.lpush("queue:python", b"no <b>job</b> at all", b"\xff\xfe", b'{"class":5,"jid":7}')
    with pyworkers(tmp_path / "python", url):
        wait_for(lambda: db.zcard("dead") == 4, PATIENCE_S, "four dead jobs")
    page = browser.get("morgue")
    assert "no <b>job</b> at all" in page.text
    assert "BadMessageError: 'class' is not a string but int" in page.text
    shown = details(browser, page, jid)
    assert "SIGKILL" in shown.text
    browser.press(page.form("/morgue"), "delete", tick=jid)
    assert db.zcard("dead") == 3


def test_dashboard_queues_and_statistics_count_pyworkers_jobs(
    browser: Browser, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    Client(url).enqueue_bulk("python", "Note", [[1], [2]])
    Client(url).enqueue("python", "Fail", [], retry=True)
    with pyworkers(tmp_path / "python", url) as server:
        server.wait_for_notes(3, timeout=PATIENCE_S)
        only(db, "retry")
        server.stop()
    waiting = Client(url).enqueue("default", "Note", ["ä<&\u2028", 1.5, 10**30])
    assert "3 Processed 1 Failed 0 Busy 1 Enqueued 1 Retries 0 Scheduled 0 Dead" in browser.get("").text
    assert "default 1" in browser.get("queues").text
    page = browser.get("queues/default")
    assert 'Note "ä<&' in page.text
    browser.press(page.form("/queues/default/delete"))
    assert db.llen("queue:default") == 0, waiting


def test_the_busy_page_lists_the_server_and_its_buttons_quiet_and_stop_it(
    browser: Browser, url: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    jid = Client(url).enqueue("python", "Wait", [str(gate)], tags=["vip"])
    with pyworkers(tmp_path / "python", url, PYWORKERS_SERVER__SIDEKIQ6="true") as server:
        page = wait_for(lambda: shown_busy(browser, jid), PATIENCE_S, "the running job is on the page")
        assert f":{server.pid}" in page.text
        assert "python" in page.text.partition(f":{server.pid}")[2].partition(jid)[0]
        assert f'python Wait vip "{gate}"' in page.text
        page = browser.press(buttons_of_the_process(page), "quiet")
        # The fetch that waits when the signal comes may still bring a job.
        server.wait_for_event("manager.state", state="quiet", timeout=PATIENCE_S)
        late = Client(url).enqueue("python", "Note")
        wait_for(lambda: " quiet " in browser.get("busy").text, PATIENCE_S, "the page says so")
        page = browser.get("busy")
        assert list(buttons_of_the_process(page).buttons) == ["stop"]
        browser.press(buttons_of_the_process(page), "stop")
        gate.touch()
        assert server.wait(PATIENCE_S) == 0
    assert [note[1] for note in server.ledger()] == [jid]
    assert buttons(browser.get("busy")) == []
    assert late in browser.get("queues/python").html


def shown_busy(browser: Browser, jid: str) -> Page | None:
    page = browser.get("busy")
    return page if jid in page.text else None


def buttons(page: Page) -> list[Form]:
    """The forms that the page has for each process."""
    return [form for form in page.forms if "identity" in form.hidden]


def buttons_of_the_process(page: Page) -> Form:
    [form] = buttons(page)
    return form


def test_a_button_without_the_token_of_the_session_is_refused(
    browser: Browser, url: str, db: redis.Redis
) -> None:
    Client(url).enqueue_in(3600, "python", "Note")
    browser.get("scheduled")
    assert browser.refused("scheduled", {"delete": "1"}) == 403
    assert db.zcard("schedule") == 1
