"""The palette, the keys of one character, and the filters that a browser keeps."""

from __future__ import annotations

import redis
from selenium.webdriver import Keys as Key

from pyworkers.protocol.keys import Keys
from tests.helpers.records import raw_job
from tests.helpers.support import wait_for
from tests.web import hostile
from tests.web.chromium import NARROW, Chromium, Open
from tests.web.visitor import Visitor

PALETTE = "dialog.palette"
_IDLE = "document.activeElement.blur()"


def find(page: Chromium, text: str) -> list[str]:
    """Open the palette and type; what it offers for the text."""
    page.type("/")
    page.type(text)
    names = f"{PALETTE} [role=option] > bdi"
    wait_for(lambda: any(name.endswith(f"contain {text}") for name in page.texts(names)), message=text)
    return page.texts(names)


def test_a_name_is_found_and_opened_by_keys_alone(show: Open) -> None:
    page = show("servers")
    assert find(page, "mai")[0] == "mail"
    assert page.text_of(f"{PALETTE} [role=status]").endswith(" found")
    assert page.focused().get_attribute("aria-activedescendant") == "finding-0"
    page.type(Key.DOWN, Key.UP, Key.ENTER)
    wait_for(lambda: page.url.endswith("/queues/mail"))
    find(page, "nothing of it")
    page.type(Key.ESCAPE)
    assert not page.is_shown(PALETTE)
    # Enter before an answer leads to the page of the same.
    page.type("/", "retries", Key.ENTER)
    wait_for(lambda: page.url.endswith(("/find?q=retries", "/retries")))


def test_the_palette_and_the_keys_have_no_fault(show: Open) -> None:
    page = show("dead?tag=vip")
    for opened in ("/", "?"):
        page.run(_IDLE)
        page.type(opened)
        for width, scheme in ((1440, "light"), (NARROW, "dark")):
            page.resize(width)
            page.prefer(scheme)
            assert page.violations() == [] and page.overflow() == 0
        page.type(Key.ESCAPE)


def test_hostile_names_stay_text(chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    for text in hostile.TEXTS[:9]:
        db.sadd(keys.queues, text)
        db.lpush(keys.queue(text), raw_job("j"))
    chromium.open(dashboard.root)
    assert any("<script>" in name for name in find(chromium, hostile.MARK))
    assert chromium.all(hostile.MARK) == [] and chromium.all(f"[{hostile.MARK}], [onclick]") == []
    assert chromium.messages() == []


def test_rows_are_walked_selected_and_acted_on_by_keys(show: Open) -> None:
    page = show("dead")
    row = "return [...document.querySelectorAll('tbody tr')].indexOf(document.activeElement.closest('tr'))"
    for key, place in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        page.type(key)
        assert page.run(row) == place
    page.type("x")
    assert page.run("return [...document.querySelectorAll('[name=job]')].findIndex(box => box.checked)") == 1
    page.type(".")
    assert page.has_focus("tr:nth-child(2) [data-label=Actions] details[open] button")
    page.type(Key.ESCAPE, "k", Key.ENTER)
    wait_for(lambda: "/jobs/" in page.url)


def test_keys_do_nothing_while_a_person_types_or_has_turned_them_off(show: Open) -> None:
    page = show("dead")
    page.run("document.querySelector('.find input').focus()")
    page.type("jkx.?/")
    assert page.run("return document.activeElement.value") == "jkx.?/"
    assert not page.is_shown("dialog.keys") and not page.is_shown(PALETTE)
    page.run(_IDLE)
    page.type("?")
    page.run("document.querySelector('dialog.keys input').click()")
    page.type(Key.ESCAPE, "/")
    assert not page.is_shown("dialog.keys") and not page.is_shown(PALETTE)
    page = show("retries")
    page.type("/")
    assert not page.is_shown(PALETTE)
    # Without them, the button in the foot of the page turns them on again.
    page.run("document.querySelector('.to-keys').click()")
    page.run("document.querySelector('dialog.keys input').click()")
    page.type(Key.ESCAPE, "/")
    assert page.is_shown(PALETTE)


def test_a_filter_is_saved_with_a_name_and_shared_as_an_address(show: Open) -> None:
    page = show("dead?tag=vip&older=60")
    page.run("document.querySelector('.saved').open = true")
    page.run("document.querySelector('.saved input').focus()")
    page.type("Tenant 7", Key.ENTER)
    assert page.text_of(".saved > summary") == "Filter: Tenant 7"
    page = show("dead?tag=late")
    page.type("/")
    names = f"{PALETTE} [role=option] > bdi"
    wait_for(lambda: "Retries" in page.texts(names))
    assert page.texts(names)[:2] == ["Tenant 7", "Dead: Tag late"]
    page.type("tenant")
    wait_for(lambda: page.texts(names)[1:2] and page.texts(names)[1].startswith("All jobs with the tag"))
    page.type(Key.ENTER)
    wait_for(lambda: page.url.endswith("/dead?tag=vip&older=60"))
    # The link of the menu gives the name to another browser.
    shared = str(page.run("return document.querySelector('.saved a').href"))
    page.run("localStorage.clear()")
    page.open("about:blank")
    page.open(shared)
    assert page.text_of(".saved > summary") == "Filter: Tenant 7"
    page.run("document.querySelector('.saved').open = true")
    page.run("document.querySelector('.saved li button').click()")
    assert page.texts(".saved li") == []
