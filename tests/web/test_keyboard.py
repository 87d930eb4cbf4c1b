"""The dashboard by keyboard alone: the focus is where the next key is useful, and Enter does what it says."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Keys as Key

from contrib.pictures import shop
from pyworkers.api import AuditLog, DeadSet, Queue, RetrySet
from pyworkers.api.browse.actions import Action, Order
from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.places import DEAD
from pyworkers.api.browse.search import Sought
from pyworkers.api.browse.tasks import create_task
from pyworkers.api.target import Admin
from tests.helpers.support import wait_for
from tests.web.chromium import Chromium, Open


def focus(page: Chromium, selector: str) -> None:
    """Focus an element, as Tab would."""
    page.run("document.querySelector(arguments[0]).focus()", selector)


def comes_to(page: Chromium, text: str) -> None:
    """Wait until the element with this text has the focus, in a frame that shows it."""
    read = "const it = document.activeElement; return it && [it.innerText, getComputedStyle(it).outlineStyle]"

    def focused() -> bool:
        # The script fails if a page is loaded meanwhile.
        with suppress(WebDriverException):
            return bool(page.run(read) == [text, "solid"])
        return False

    wait_for(focused, message=f"the focus on {text!r}")


def test_a_dead_job_is_found_read_and_retried(show: Open, admin: Admin) -> None:
    page = show("dead?tag=vip")
    focus(page, "tbody th a")
    page.type(Key.ENTER)
    wait_for(lambda: "Traceback" in page.text)
    focus(page, "main button[value=run]")
    page.type(Key.ENTER)
    comes_to(page, "1 job put into its queue.")
    page.type(Key.TAB)
    assert page.has_focus("main *")
    assert Queue("mail", admin).find_job(shop.JOB)


def test_a_queue_is_paused_and_cleared(show: Open, admin: Admin) -> None:
    page = show("queues?match=mail")
    focus(page, "td .menu summary")
    page.type(Key.ENTER, Key.TAB)
    assert page.focused().text == "Pause"
    page.type(Key.SPACE)
    comes_to(page, "mail is paused.")
    focus(page, "td .menu summary")
    page.type(Key.ENTER)
    focus(page, "button[name=ask]")
    page.type(Key.ENTER)
    comes_to(page, "312 waiting jobs will be removed; this can be undone for ten minutes.")
    page.type(Key.TAB)
    assert page.focused().text == "Clear 312 jobs"
    page.type(Key.ENTER)
    comes_to(page, "mail is cleared: 312 jobs removed.")
    assert Queue("mail", admin).size == 0


def test_all_servers_are_stopped(show: Open) -> None:
    page = show("servers")
    focus(page, "button[value=stop].danger")
    page.type(Key.ENTER)
    comes_to(page, "3 servers will get the signal: each stops after its jobs within 10 seconds.")
    page.type(Key.TAB, Key.ENTER)
    comes_to(page, "Sent stop to 3 servers: each stops after its jobs within 10 seconds.")


def test_all_dead_jobs_are_deleted(show: Open, admin: Admin) -> None:
    page = show("dead")
    focus(page, ".over summary")
    page.type(Key.ENTER)
    focus(page, "button[value=all-delete]")
    page.type(Key.ENTER)
    comes_to(page, "9 jobs are selected. Nothing has happened yet.")
    page.type(Key.TAB)
    assert page.focused().text == "Delete: 9 jobs"
    page.type(Key.ENTER)
    wait_for(lambda: DeadSet(admin).size == 0)


def test_selected_jobs_are_deleted_after_a_question(show: Open, admin: Admin) -> None:
    first, second, *kept = [entry.jid for entry in DeadSet(admin)]
    page = show("dead")
    for jid in (first, second):
        focus(page, f"[name=job][aria-label$='{jid}']")
        page.type(Key.SPACE)
    focus(page, "button[value=ask-delete]")
    page.type(Key.ENTER)
    comes_to(page, "Delete 2 selected jobs now? This can be undone for ten minutes.")
    assert DeadSet(admin).size == len(kept) + 2
    page.type(Key.TAB)
    assert page.focused().text == "Delete 2 jobs"
    page.type(Key.ENTER)
    comes_to(page, "2 jobs deleted.")
    assert [entry.jid for entry in DeadSet(admin)] == kept


def test_a_task_is_stopped_although_its_page_loads_anew(show: Open, admin: Admin) -> None:
    sought = Sought(DEAD, Filter(job_class="SendReceipt"), time.time(), ())
    task = create_task(admin, Order(DEAD, Action.DELETE), sought, "ann")
    page = show(f"tasks/{task.id}")
    comes_to(page, "Stop")

    def stopped() -> bool:
        # A key that is pressed while the page loads is lost.
        with suppress(WebDriverException):
            page.type(Key.ENTER)
        return "task.stop" in [action.action for action in AuditLog(admin).page().actions]

    wait_for(stopped)


def test_enter_in_the_new_time_of_a_job_reschedules_it(show: Open, admin: Admin) -> None:
    jid = next(iter(RetrySet(admin))).jid
    page = show(f"jobs/{jid}?in=retries")
    page.wait_for_search()
    page.run("document.querySelector('[name=when]').value = '2040-01-02T03:04'")
    focus(page, "[name=when]")
    page.type(Key.ENTER)
    comes_to(page, "1 job rescheduled.")
    assert {entry.jid: entry.score for entry in RetrySet(admin)}[jid] > 2_200_000_000


@pytest.mark.parametrize("field", ["[name=job]", "[name=when]", ".all input"])
def test_enter_in_a_field_of_a_list_chooses_no_action(show: Open, field: str) -> None:
    page = show("retries")
    page.run("document.onsubmit = event => { event.preventDefault(); window.action = event.submitter.value }")
    page.run("document.querySelectorAll('.menu').forEach(menu => menu.open = true)")
    focus(page, field)
    page.type(Key.ENTER)
    assert page.run("return window.action") is None
    focus(page, "button[value=all-kill]")
    page.type(Key.ENTER)
    assert page.run("return window.action") == "all-kill"
