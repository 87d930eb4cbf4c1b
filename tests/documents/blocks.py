"""Blocks: the fenced code blocks of the documents, with the place of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.helpers.support import ROOT

DOCS = ROOT / "contrib" / "docs"
# In front of a block that cannot run here: <!-- not run: needs a cluster -->
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_FENCE = re.compile(r"( *)```(.*)")


@dataclass(frozen=True, slots=True)
class Block:
    """One code block, without a language commands; ``not_run`` is the reason why it cannot run, or empty."""

    page: str
    line: int
    language: str
    code: str
    not_run: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every document: the README and all of contrib/docs."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    """The name of a page, as tests and messages show it."""
    return str(page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT))


@cache
def all_blocks() -> tuple[Block, ...]:
    """The blocks of all pages, in their order."""
    return tuple(block for page in pages() for block in _blocks(name_of(page), page.read_text()))


def blocks(language: str, page: str = "") -> list[Block]:
    """The blocks of a language, of one page or of all."""
    return [block for block in all_blocks() if block.language == language and page in ("", block.page)]


def own_test(page: str) -> str:
    """The test that runs the Python programs of a page, if there is one of its own: it names the page."""
    return _named_by_tests().get(page, "")


@cache
def _named_by_tests() -> dict[str, str]:
    found = dict[str, str]()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in re.findall(r"docs[/\" ]+([\w/-]+\.md)", path.read_text()):
            found[name] = str(path.relative_to(ROOT))
    return found


def _blocks(page: str, text: str) -> Iterator[Block]:
    lines = iter(enumerate(text.splitlines(), 1))
    before = ""
    for number, line in lines:
        if fence := _FENCE.fullmatch(line):
            code = []
            for _, inside in lines:
                if inside == f"{fence[1]}```":
                    break
                code.append(inside.removeprefix(fence[1]))
            reason = _NOT_RUN.fullmatch(before)
            yield Block(page, number, fence[2] or "sh", "\n".join([*code, ""]), reason[1] if reason else "")
        before = line.strip() or before
