"""The documents agree with the tests: every fault has a test that proves it, and every key has its TTL."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.faults.invariants import DECLARED

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "contrib" / "docs" / "reliability.md"
ROWS = {
    "W": 13,
    "M": 13,
    "R": 12,
    "N": 4,
    "P": 11,
    "T": 6,
    "S": 2,
    "H": 7,
    "A": 5,
    "U": 6,
    "L": 6,
    "O": 5,
    "B": 3,
    "J": 4,
    "K": 7,
    "C": 2,
    "D": 5,
    "V": 2,
    "G": 6,
    "E": 2,
    "Q": 6,
}


@cache
def marks() -> dict[str, set[str]]:
    """By row, the files whose tests are marked with it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        code = path.read_text()
        for node in ast.walk(ast.parse(code)) if "pytest.mark.fault" in code else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
                for row in node.args:
                    found[ast.literal_eval(row)].add(path.relative_to(TESTS).as_posix())
    return found


def test_every_row_is_proved_and_no_other_is_named() -> None:
    assert marks().keys() == {f"{kind}{number + 1}" for kind, most in ROWS.items() for number in range(most)}


def test_the_page_says_where() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \|.*\|([^|]*)\|$", PAGE.read_text(), re.MULTILINE)
    named = {row: set(re.findall(r"`([^`]+)`", where)) for row, where in rows}
    found = marks()
    assert named.keys() == found.keys()
    assert {row for row, files in named.items() if not files or files - found[row]} == set()


def test_the_keys_that_do_not_expire_are_those_of_the_page() -> None:
    section = (PAGE.parent / "redis.md").read_text().partition("## Keys that do not expire")[2]
    names = [
        name.replace("NAME", "q").replace("IDENTITY", "host:1:0123456789ab")
        for row in re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    ]
    named = {pattern for pattern in DECLARED for name in names if re.fullmatch(pattern, name)}
    assert named == {pattern for pattern, expires in DECLARED.items() if not expires}
    assert all(any(re.fullmatch(pattern, name) for pattern in DECLARED) for name in names)
