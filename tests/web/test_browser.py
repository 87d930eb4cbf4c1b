"""The pages in Chromium: readable, usable by keyboard, on a telephone, in the dark, without JavaScript."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pytest
import redis
from selenium.webdriver import Keys as Key

from contrib.pictures import shop
from pyworkers.api import Queue
from pyworkers.protocol.keys import Keys
from pyworkers.web.navigation import GROUPS, NAVIGATION, PageGroup
from tests.helpers.records import raw_job
from tests.helpers.support import wait_for
from tests.web.chromium import NARROW, WIDE, Chromium
from tests.web.document import Document
from tests.web.test_crawl import kind
from tests.web.visitor import Visitor

_TABLET = 768
PAGES = [path for path, _ in NAVIGATION]
# The rules of axe that look at colours: a scheme changes nothing else.
_OF_COLOURS = ("color-contrast", "link-in-text-block")


@pytest.fixture
def evening(db: redis.Redis, keys: Keys, one_redis_url: str) -> None:
    """The data of a shop on an evening with some trouble."""
    shop.fill(db, keys, one_redis_url)


def linked(dashboard: Visitor, page: str) -> list[str]:
    """The page, one of each kind below it, and one of a job, which has its own state in each page.

    That of a queue is examined with the queues, that of a server with the servers.
    """
    answer = dashboard.ask(page)
    known = {kind(f"/{path}") for path, _ in NAVIGATION}
    found = [page]
    for link in Document(dashboard.root + page, answer.page.html).links:
        path = urlsplit(link).path.lstrip("/")
        if path.partition("/")[0] in (page, "jobs") and kind(path) not in known:
            known.add(kind(path))
            found.append(path)
    return found


def problems(browser: Chromium, *, each: bool) -> list[str]:
    """What is wrong with the page at each width and in each scheme; in each pair of both, or in two pairs."""
    found = browser.messages()
    for width, scheme in ((WIDE, "light"), (NARROW, "dark")):
        browser.resize(width)
        found += too_wide(browser, width)
        browser.prefer(scheme)
        found += [f"{scheme} at {width}: {violation}" for violation in browser.violations()]
        if each:
            other = "dark" if scheme == "light" else "light"
            browser.prefer(other)
            found += [f"{other} at {width}: {violation}" for violation in browser.violations(*_OF_COLOURS)]
    return [f"{browser.url}: {problem}" for problem in found]


def too_wide(browser: Chromium, width: int) -> list[str]:
    """What scrolls sideways."""
    pixels = browser.overflow()
    return [f"{pixels} pixels too wide at {width}: {browser.wider()}"] if pixels else []


of_each_group = pytest.mark.parametrize("group", GROUPS, ids=[group.label for group in GROUPS])


@of_each_group
@pytest.mark.usefixtures("small_shop")
def test_a_page_and_those_that_it_links_have_no_fault(
    group: PageGroup, chromium: Chromium, dashboard: Visitor
) -> None:
    found = []
    for page, _ in group.pages:
        for address in linked(dashboard, page):
            chromium.open(dashboard.root + address)
            # The page that is examined must not be left.
            chromium.wait_for_search()
            found += problems(chromium, each=address == page)
    assert found == []


@of_each_group
def test_a_page_without_data_has_none_either(
    group: PageGroup, chromium: Chromium, dashboard: Visitor
) -> None:
    found = []
    for page, _ in group.pages:
        chromium.open(dashboard.root + page)
        found += problems(chromium, each=False)
    assert found == []


@pytest.mark.parametrize("link", ["Edit this job …", "Edit and enqueue a copy …"])
def test_the_form_to_edit_a_job_has_none_either(
    link: str, chromium: Chromium, dashboard: Visitor, evening: None
) -> None:
    chromium.open(f"{dashboard.root}jobs/{shop.JOB}")
    chromium.wait_for_search()
    chromium.press(link)
    assert chromium.all("textarea")
    assert problems(chromium, each=True) == []


def test_the_pages_are_one_row_on_a_telephone_with_the_current_one_in_sight(
    chromium: Chromium, dashboard: Visitor
) -> None:
    chromium.resize(NARROW)
    for page in PAGES:
        chromium.open(dashboard.root + page)
        for here in chromium.boxes("header [aria-current]"):
            assert here["x"] >= 0 and here["x"] + here["width"] <= NARROW, page
        for row in (".groups", ".pages"):
            assert len({link["y"] for link in chromium.boxes(f"header {row} a")}) == 1, page


def test_a_card_has_its_label_beside_a_number_that_stands_alone(
    chromium: Chromium, dashboard: Visitor, evening: None
) -> None:
    chromium.resize(NARROW)
    chromium.open(f"{dashboard.root}retries")
    cells = [f'[data-label="{label}"]' for label in ("Failures", "Error")]
    assert len({chromium.boxes(cell)[0]["width"] for cell in cells}) == 1
    assert len({chromium.style(cell, "padding-left") for cell in cells}) == 1
    chromium.open(f"{dashboard.root}queues")
    waiting, latency = (chromium.boxes(f'[data-label="{label}"]')[0] for label in ("Size", "Latency"))
    assert waiting["y"] == latency["y"] and waiting["x"] < latency["x"]


def test_without_javascript_all_pages_are_in_sight_on_a_telephone(
    chromium: Chromium, dashboard: Visitor
) -> None:
    chromium.forbid_scripts()
    chromium.resize(NARROW)
    for group in GROUPS:
        chromium.open(dashboard.root + group.pages[0][0])
        links = chromium.boxes("header li a")
        assert len(links) == len(GROUPS) + len(group.pages)
        assert [link for link in links if link["x"] < 0 or link["x"] + link["width"] > NARROW] == []


def test_a_button_works_without_javascript(
    chromium: Chromium, dashboard: Visitor, evening: None, one_redis_url: str, namespace: str
) -> None:
    queue = Queue(shop.PAUSED, one_redis_url, namespace=namespace)
    chromium.forbid_scripts()
    chromium.open(dashboard.root + "queues")
    chromium.press("Resume")
    wait_for(lambda: f"{shop.PAUSED} is resumed." in chromium.text)
    assert not queue.paused


def test_the_keyboard_reaches_everything_and_the_focus_is_visible(
    chromium: Chromium, dashboard: Visitor, evening: None
) -> None:
    chromium.open(dashboard.root + "queues")
    # End the news: the first ones replace links of the page while they are looked at.
    chromium.run("window.dispatchEvent(new Event('pagehide'))")
    chromium.type(Key.TAB)
    assert chromium.focused().text == "To the content"
    assert chromium.focused().rect["x"] >= 0
    chromium.type(Key.ENTER)
    assert chromium.focused().tag_name == "main"
    reachable = "main a, main button, main input:not([type=hidden]), main select, main summary"
    for element in chromium.all(reachable):
        if element.is_displayed():
            chromium.type(Key.TAB)
            assert chromium.focused() == element
            assert element.value_of_css_property("outline-style") != "none", element.get_attribute(
                "outerHTML"
            )


def test_a_job_is_one_line_that_expands_to_the_whole_error(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    error = {"error_class": "Refused", "error_message": "the bank refuses\n  the card\n" + "long " * 100}
    jobs = {raw_job(f"{number:024x}", args=["x" * 150], **error): number for number in range(30)}
    db.zadd(keys.dead, jobs)
    chromium.open(f"{dashboard.root}dead")
    assert {box["height"] <= 40 for box in chromium.boxes("tbody tr")} == {True}
    [summary] = {text.strip() for text in chromium.texts("td[data-label=Error] summary")}
    assert summary == "Refused: the bank refuses ⏎"
    chromium.run("document.querySelector('td[data-label=Error] summary').click()")
    assert "  the card" in chromium.text_of("td[data-label=Error] pre")
    # The actions are in a menu of the row, and those on selected jobs are there while some are selected.
    assert not chromium.is_shown("td button[name=one]") and not chromium.is_shown(".selection")
    chromium.run("document.querySelector('[name=job]').click()")
    assert chromium.is_shown(".selection")
    chromium.resize(NARROW)
    assert too_wide(chromium, NARROW) == []


@pytest.mark.usefixtures("evening")
def test_the_menu_of_a_row_is_in_sight_on_a_tablet(chromium: Chromium, dashboard: Visitor) -> None:
    chromium.resize(_TABLET)
    chromium.open(f"{dashboard.root}running")
    assert all(menu["right"] <= _TABLET for menu in chromium.boxes("td summary"))
    [before, *_] = chromium.boxes("td[data-label=Queue] a")
    # A job is one line.
    assert chromium.boxes("main tbody tr")[0]["height"] <= 40
    chromium.run("document.querySelector('td summary').click()")
    assert chromium.is_shown("td button")
    assert chromium.boxes("td[data-label=Queue] a")[0]["y"] == before["y"]


def test_the_whole_id_is_copied(chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    db.zadd(keys.dead, {raw_job(jid := f"{7:024x}"): 1})
    chromium.open(f"{dashboard.root}dead")
    assert chromium.text_of("td[data-label=JID] a") == jid[:8]
    chromium.resize(_TABLET)
    [button], [cell] = chromium.boxes(".copy"), chromium.boxes("td[data-label=JID]")
    assert button["right"] <= cell["right"]
    chromium.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    chromium.run("document.querySelector('.copy').click()")
    assert chromium.run("return window.copied") == jid


@pytest.mark.usefixtures("evening")
def test_times_are_those_of_the_viewer_with_utc_after_them(chromium: Chromium, dashboard: Visitor) -> None:
    page = f"jobs/{shop.JOB}?in=dead"
    stored = Document(dashboard.root, dashboard.get(page).html)
    assert stored.problems == []
    chromium.live_in("Asia/Kolkata")
    chromium.open(dashboard.root + page)
    chromium.wait_for_search()
    exact = chromium.texts(".exact")
    written = chromium.run("return [...document.querySelectorAll('.exact time')].map(el => el.dateTime)")
    assert len(exact) == len(written) > 2
    for words, moment in zip(exact, written, strict=True):
        at = datetime.fromisoformat(moment)
        assert f"{at.minute:02}:{at.second:02}" in words.partition("(")[2]
        here = at.astimezone(ZoneInfo("Asia/Kolkata"))
        assert f"{here.hour % 12 or 12}:{here.minute:02}:{at.second:02}" in words.partition("(")[0]
        assert words.endswith(" UTC)")
    chromium.live_in("UTC")
    chromium.open(dashboard.root + page)
    chromium.wait_for_search()
    assert [words for words in chromium.texts(".exact") if not words.endswith("M UTC")] == []


@pytest.mark.parametrize("path", ["retries?tag=vip", "dead?tag=vip"])
@pytest.mark.usefixtures("evening")
def test_all_filters_are_in_one_line_on_a_laptop(chromium: Chromium, dashboard: Visitor, path: str) -> None:
    chromium.open(dashboard.root + path)
    chromium.resize(WIDE)
    bottom = "el => Math.round(el.getBoundingClientRect().bottom)"
    bottoms = chromium.run(f"return [...document.querySelectorAll('form.filter > *')].map({bottom})")
    assert len(set(bottoms)) == 1


@pytest.mark.usefixtures("evening")
def test_the_fields_of_a_cron_entry_are_even_on_a_telephone(chromium: Chromium, dashboard: Visitor) -> None:
    chromium.open(dashboard.root + "cron")
    chromium.resize(NARROW)
    fields = chromium.boxes("form .field > :not(label)")
    assert len({round(field["width"]) for field in fields[:-1]}) == 1
    assert [round(field["x"]) for field in fields[:3]] == [
        round(fields[0]["x"]),
        round(fields[1]["x"]),
        round(fields[0]["x"]),
    ]
    button = chromium.boxes("button[value=add]")[0]
    assert round(button["width"]) == round(fields[-1]["width"]) > round(fields[0]["width"])


@pytest.mark.usefixtures("evening")
def test_no_class_is_broken_on_a_small_laptop(chromium: Chromium, dashboard: Visitor) -> None:
    chromium.open(dashboard.root + "retries")
    chromium.resize(1024)
    lines = "a => Math.round(a.getBoundingClientRect().height / parseFloat(getComputedStyle(a).lineHeight))"
    assert set(chromium.run(f"return [...document.querySelectorAll('tbody th a')].map({lines})")) == {1}
