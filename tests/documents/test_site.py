"""The documents' site: every page is in the navigation once, and none fetches a file from elsewhere.

The build itself is ``make docs``, which CI runs once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mkdocs.config.base import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

from contrib.reference import PAGES, hooks
from tests.documents.blocks import DOCS
from tests.helpers.support import ROOT


@pytest.fixture
def config(tmp_path: Path) -> MkDocsConfig:
    return load_config(str(ROOT / "contrib/mkdocs.yml"), site_dir=str(tmp_path))


def named(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, dict):
            for below in entry.values():
                yield from named(below)
        else:
            yield entry


def test_every_page_stands_in_the_navigation_once(config: MkDocsConfig) -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} | set(PAGES)
    assert sorted(named(list(hooks.completed(config.nav or [], pages)))) == sorted(pages)


def test_a_new_page_needs_no_line() -> None:
    nav = ["index.md", {"How-to": ["how-to/index.md", "how-to/*"]}, {"Features": ["*"]}]
    pages = {"index.md", "new.md", "how-to/index.md", "how-to/new.md", "bench/README.md"}
    assert list(hooks.completed(nav, pages)) == [
        "index.md",
        {"How-to": ["how-to/index.md", "how-to/new.md"]},
        {"Features": ["new.md"]},
    ]


@pytest.mark.parametrize(
    "fetched",
    [
        '<script src="https://cdn.example.org/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/css">',
        "<img alt=x src=http://example.org/x.png>",
    ],
)
def test_a_page_that_fetches_from_elsewhere_is_refused(
    config: MkDocsConfig, tmp_path: Path, fetched: str
) -> None:
    (tmp_path / "page.html").write_text('<a href="https://example.org">a link</a><img src="x.svg">')
    hooks.on_post_build(config)
    (tmp_path / "page.html").write_text(f"<p>{fetched}</p>")
    with pytest.raises(PluginError, match=r"page\.html fetches a file from elsewhere"):
        hooks.on_post_build(config)


def test_programs_inside_of_tables_are_markdown() -> None:
    row = hooks.as_site("<table><tr><td>\n\n[all](../bench/README.md)")
    assert (
        row == '<table markdown="block"><tr markdown="block"><td markdown="block">\n\n[all](bench/README.md)'
    )


def test_links_of_the_readme_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md"):
        targets = re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text())
        assert len(targets) > 10
        assert [target for target in targets if not (ROOT / target).exists()] == []
