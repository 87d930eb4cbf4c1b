"""What the documents say about the code is what the code has, and readers find it."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from contrib.reference import events
from contrib.reference.sources import template, trees
from pyworkers import hooks
from pyworkers.alarms.conditions import CONDITIONS
from pyworkers.config.alarming import KINDS
from pyworkers.store.processes.decoding import FIELDS
from pyworkers.store.transport.errors import TABLE
from tests.documents.blocks import DOCS
from tests.helpers.support import ROOT

pytestmark = pytest.mark.usefixtures("syntax_trees")
HOW_TO = sorted(path for path in (DOCS / "how-to").glob("*.md") if path.name != "index.md")
# What people who know Celery look for.
WORDS = {
    "priorities", "acks_late", "countdown", "beat", "canvas", "-P gevent", "Flower", "task_always_eager",
    "signals", "routing", "visibility timeout", "memory",
}  # fmt: skip
# An installation of the import name, with or without extras.
MISNAMED = re.compile(r"pip install [^`\n]*\bpyworkers(?![-\w.])[^`\n]*")
TROUBLESHOOTING = (DOCS / "troubleshooting.md").read_text()
SYMPTOMS = re.findall(r"^\| (?!message|---)((?:``.*?``|`[^`]*`|[^|`])*) \|", TROUBLESHOOTING, re.MULTILINE)


@cache
def texts() -> str:
    """Every text of the code, with ``…`` for what is known at run time."""
    nodes = (node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.expr))
    found = {template(node) for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)}
    return "\n".join(found | {rule.meaning for rule in TABLE.values()})


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_a_message_of_troubleshooting_is_one_of_the_code(symptom: str) -> None:
    spans = [single or double.strip() for double, single in re.findall(r"``(.*?)``|`([^`]+)`", symptom)]
    for span in spans:
        known = span in texts() or span in events.events()
        assert known or span.startswith("pyworkers "), f"no text of the code is {span!r}"


def test_troubleshooting_has_many_symptoms() -> None:
    assert len(SYMPTOMS) > 50


def test_each_how_to_is_a_question_and_stands_in_the_list() -> None:
    assert len(HOW_TO) == 37
    index = (DOCS / "how-to/index.md").read_text()
    for path in HOW_TO:
        title = path.read_text().partition("\n")[0].removeprefix("# ")
        assert title.partition(" (")[0].endswith("?"), path.name
        assert f"[{title.partition(' (')[0]}]({path.name})" in index


@pytest.mark.parametrize("word", sorted(WORDS))
def test_a_word_of_celery_is_a_title_and_stands_in_coming_from(word: str) -> None:
    titles = [path.read_text().partition("\n")[0] for path in HOW_TO]
    assert any(word in title for title in titles)
    celery = (DOCS / "coming-from.md").read_text().partition("## From Celery")[2].partition("\n## ")[0]
    assert word in celery


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("alarms.md", [*KINDS]),
        ("jobs.md", [f"@worker.{kind}" for kind in hooks.KINDS]),
        ("protocol.md", [*FIELDS]),
    ],
)
def test_a_page_names_each_kind_of_alarm_hook_and_field_of_a_heartbeat(page: str, names: list[str]) -> None:
    rows = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("| `")]
    missing = [name for name in names if f"`{name}`" not in "".join(rows)]
    assert missing == [], f"{page} has a row for each"


def test_each_kind_of_alarm_has_its_condition() -> None:
    assert CONDITIONS.keys() == KINDS.keys()


def test_the_package_has_its_own_name_in_every_installation() -> None:
    """The import name is `pyworkers`; a package index knows `pyworkers-server`."""
    texts = {path: path.read_text() for path in [ROOT / "README.md", *DOCS.rglob("*.md")]}
    wrong = [f"{path.name}: {found}" for path, text in texts.items() for found in MISNAMED.findall(text)]
    assert wrong == []


def test_no_entry_of_the_changelog_is_there_twice() -> None:
    """A merge keeps the former list and the new one."""
    entries = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("- ")]
    assert [line for line in entries if entries.count(line) > 1] == []


def test_each_row_of_a_table_has_the_cells_of_its_head() -> None:
    """A bar too many in a row hides its last cell on the site."""
    wrong = []
    for path in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        bars = 0
        for line in path.read_text().splitlines():
            if re.fullmatch(r"\|[-| ]+\|", line):
                bars = line.count("|")
            elif not line.startswith("|"):
                bars = 0
            elif bars and re.sub(r"``.*?``|`[^`]*`|\\\|", "", line).count("|") != bars:
                wrong.append(f"{path.name}: {line}")
    assert wrong == []
