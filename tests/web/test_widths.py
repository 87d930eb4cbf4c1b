"""No page scrolls sideways, however long its texts are, on any screen from 320 pixels on."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import cycle
from urllib.parse import urlsplit

import redis

from pyworkers.protocol.keys import Keys
from pyworkers.web.navigation import NAVIGATION
from tests.web import hostile, lengthy
from tests.web.chromium import WIDE, Chromium
from tests.web.document import Document
from tests.web.test_crawl import kind
from tests.web.visitor import Visitor

# The least that WCAG asks for, and the narrowest window of each wider layout (`@media`).
# What fits there fits in wider windows of the same layout.
WIDTHS = (320, 641, 769, 961, 1201)
PAGES = [path for path, _ in NAVIGATION]
# Of pages that differ in names, places and filters alone.
_MOST_ALIKE = 2


def pages(dashboard: Visitor) -> list[str]:
    """All pages of the navigation, and some of each kind that they and those link."""
    found: list[str] = []
    waiting = deque(PAGES)
    alike: Counter[tuple[str, ...]] = Counter()
    while waiting:
        found.append(path := waiting.popleft())
        for link in Document(dashboard.root + path, dashboard.ask(path).page.html).links:
            parts = urlsplit(link)
            linked = f"{parts.path.lstrip('/')}{parts.query and '?'}{parts.query}"
            group = kind(f"/{linked}")
            is_page = not linked.startswith(("api/", "static/"))
            if is_page and linked not in (*found, *waiting) and alike[group] < _MOST_ALIKE:
                alike[group] += 1
                waiting.append(linked)
    return found


def too_wide(browser: Chromium, path: str, widths: Sequence[int]) -> list[str]:
    """At which widths the page scrolls sideways, with the elements that reach out."""
    found = []
    for width in widths:
        browser.resize(width)
        if pixels := browser.overflow():
            found.append(f"{path[:100]}: {pixels} too many at {width}: {browser.wider()}")
    return found


def times_cut(browser: Chromium, path: str) -> list[str]:
    """The times of a list of jobs that end in an ellipsis."""
    read = (
        "return [...document.querySelectorAll('.lines td:has(time)')]"
        ".filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.innerText)"
    )
    return [f"{path[:100]}: {text}" for text in browser.run(read)]


def test_lengthy_names_and_numbers(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    lengthy.fill(db, keys, one_redis_url)
    found = []
    # A page begins at the width at which the one before has ended.
    for path, widths in zip(pages(dashboard), cycle((WIDTHS, WIDTHS[::-1])), strict=False):
        chromium.open(dashboard.root + path)
        found += too_wide(chromium, path, widths)
        chromium.resize(641)
        found += times_cut(chromium, path)
    assert found == []


def test_the_times_below_a_chart_fit_at_any_hour(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    """Those of yesterday have the day in front, and before noon an hour of two digits is at each end."""
    lengthy.fill(db, keys, one_redis_url)
    for path in ("?range=24h", "?range=72h"):
        chromium.open(dashboard.root + path)
        assert chromium.run(
            "const times = [...document.querySelectorAll('.ticks time')];"
            "for (const time of times) time.textContent = 'Wed 12:00 AM';"
            "return times.length"
        )
        assert too_wide(chromium, path, (320, 385, *WIDTHS)) == []


def test_hostile_texts_stay_text_and_break_no_page(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    hostile.fill(db, keys)
    found = []
    for path, widths in zip(pages(dashboard), cycle(((WIDE, 320), (320, WIDE))), strict=False):
        chromium.open(dashboard.root + path)
        assert chromium.all(f"{hostile.MARK}, [{hostile.MARK}], [onclick]") == [], path
        if path in PAGES:
            assert chromium.messages() == [], path
        found += too_wide(chromium, path, widths)
    assert found == []
