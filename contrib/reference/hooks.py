"""Hooks of MkDocs: the pages of the reference, the navigation, and the checks after the build.

Run by ``make docs``. Nothing here writes into contrib/docs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from contrib.reference import PAGES
from contrib.reference.api import undocumented

# Beside contrib/docs, and part of the site all the same.
_BENCH = ("README.md", "peer.py", "results/*.svg")
_BESIDE = re.compile(r"\]\(\.\./bench/")
_CELL = re.compile(r"<(table|tr|td)>")
# Files that a browser fetches by itself.
_ELSEWHERE = r"=[\"']?(?:https?:)?//[^>]*"
_FETCHED = re.compile(rf"<(?:script|img|iframe)[^>]*\ssrc{_ELSEWHERE}|<link[^>]*\shref{_ELSEWHERE}")
_log = logging.getLogger("mkdocs.hooks")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and those alongside contrib/docs, and complete the navigation."""
    for name, write in PAGES.items():
        files.append(File.generated(config, name, content=write()))
    bench = Path(config.docs_dir).parent / "bench"
    for path in (path for pattern in _BENCH for path in bench.glob(pattern)):
        file = File.generated(config, f"bench/{path.relative_to(bench)}", abs_src_path=str(path))
        file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
    config.nav = list(completed(config.nav or [], {file.src_uri for file in files.documentation_pages()}))
    for name in undocumented():
        _log.warning("%s is public and has no docstring", name)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The Markdown of a page, as the site needs it."""
    return (
        markdown.replace("](../docs/", "](../")
        if page.file.src_uri.startswith("bench/")
        else as_site(markdown)
    )


def as_site(markdown: str) -> str:
    """Make Markdown inside of HTML tables Markdown, and links to contrib/bench links inside of the site."""
    return _CELL.sub(r'<\1 markdown="block">', _BESIDE.sub("](bench/", markdown))


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a page that fetches a file from elsewhere."""
    for path in Path(config.site_dir).rglob("*.html"):
        if found := _FETCHED.search(path.read_text()):
            raise PluginError(f"{path.name} fetches a file from elsewhere: {found[0]}")


def completed(nav: list[Any], pages: set[str]) -> Iterator[Any]:
    """The navigation with pages in the places of the patterns; each page is in it once."""
    named = set(_named(nav))
    left = {page for page in pages - named if not page.startswith("bench/")}
    for entry in nav:
        if isinstance(entry, dict):
            yield {title: list(_completed_section(below, left)) for title, below in entry.items()}
        else:
            yield entry


def _completed_section(below: list[str], left: set[str]) -> Iterator[str]:
    for entry in below:
        if "*" in entry:
            folder = entry.rpartition("/")[0]
            yield from sorted(p for p in left if fnmatch(p, entry) and p.rpartition("/")[0] == folder)
        else:
            yield entry


def _named(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, dict):
            for below in entry.values():
                yield from _named(below)
        else:
            yield entry
