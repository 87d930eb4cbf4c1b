"""The parser behind the crawler finds what it is there to find."""

from __future__ import annotations

import pytest

from tests.web.document import Document

_URL = "http://127.0.0.1:1/queues"
_GOOD = "<!doctype html><html><head><title>t</title></head><body><main><h1>h</h1>{}</main></body></html>"


def problems(html: str) -> list[str]:
    return Document(_URL, _GOOD.format(html)).problems


@pytest.mark.parametrize(
    "html",
    [
        "&lt;xhostile&gt; <bdi>\u202exhostile</bdi>",
        '<a href="/queues/xhostile?x=1#top">x</a><br><img src="/a.png" alt="">',
        '<form method="post"><input type="hidden" name="a"><button>b</button></form>',
        '<label for="b">b</label><select id="b"><option>xhostile</option></select>',
        '<label>a <input name="a"></label>',
        "<svg><path d='M0 0'/></svg>",
    ],
)
def test_a_good_page_has_no_problem(html: str) -> None:
    assert problems(html) == []


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ("<xhostile></xhostile>", "hostile text became markup"),
        ('<p title="" xhostile="">x</p>', "hostile text became markup"),
        ('<p onclick="x">x</p>', "a script in an attribute"),
        ("<script>alert(1)</script>", "a script within the page"),
        ('<p style="color: red">x</p>', "a style within the page"),
        ("<style>p {}</style>", "a style within the page"),
        ("<p>x\x1b[31m</p>", "the control character '\\x1b'"),
        ("<p>\u202ex</p>", "bidi marks outside <bdi>"),
        ('<a href="//example.com">x</a>', "a link outside"),
        ('<a href="javascript:alert(1)">x</a>', "a link outside"),
        ('<a href="/">  </a>', "an empty <a>"),
        ('<p id="a">x</p><p id="a">y</p>', "the id 'a' is not unique"),
        ('<input name="a">', "a field without a label"),
        ('<label for="nowhere">x</label>', "there is no id 'nowhere'"),
        ("<div><p>x</div>", "</div> within"),
        ("<h1>again</h1>", "2 of <h1>"),
    ],
)
def test_a_fault_is_a_problem(html: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems(html)), problems(html)


def test_a_page_that_ends_early_is_a_problem() -> None:
    assert any(found.startswith("not closed") for found in Document(_URL, "<!doctype html><p>x").problems)
