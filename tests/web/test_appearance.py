"""Appearance: theme and time zone are chosen on a page without JavaScript, and kept by the browser."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.helpers.support import wait_for
from tests.web.chromium import Open
from tests.web.visitor import Visitor


def test_the_choice_is_kept_until_another_one(dashboard: Visitor) -> None:
    chosen = dashboard.get("appearance?theme=dark&zone=Asia/Kolkata")
    assert chosen.path == "/appearance"
    for path in ("appearance", "queues", "jobs/none"):
        html = dashboard.get(path).html
        assert '<html lang="en" data-theme="dark" data-zone-kept="Asia/Kolkata">' in html
        assert '<meta name="color-scheme" content="dark">' in html
    dashboard.get("appearance?theme=&zone=")
    assert '<html lang="en">' in dashboard.get("queues").html


@pytest.mark.parametrize("zone", ["Mars/Base", "../../etc/passwd", "\x1b", "a" * 500, '"><b xhostile>'])
def test_a_text_that_is_no_zone_is_refused_and_stays_in_the_form(dashboard: Visitor, zone: str) -> None:
    refused = dashboard.get(f"appearance?theme=dark&zone={quote(zone)}")
    assert "This is not a time zone" in refused.text and "<b xhostile" not in refused.html
    for kind in ("theme", "zone"):
        name = f"pyworkers_{kind}_{dashboard.root.rpartition(':')[2].strip('/')}"
        answer = dashboard.ask("queues", Cookie=f"{name}={quote(zone)}")
        assert answer.status == 200 and '<html lang="en">' in answer.page.html


def test_colours_and_times_follow_the_choice(show: Open) -> None:
    page = show("appearance")
    page.enter("theme", "dark")
    page.enter("zone", "Asia/Kolkata")
    page.press("Keep")
    wait_for(lambda: page.style("html", "color-scheme") == "dark")
    assert page.style("body", "background-color") == "rgb(15, 18, 22)"
    page = show("")
    assert "Asia/Kolkata" in page.texts("[data-zone]")
    assert page.violations() == []
