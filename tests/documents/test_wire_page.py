"""The page of the wire names what the code has, so that a client can be built from it alone."""

from __future__ import annotations

import re

import pytest

from contrib.clients.wire import files
from contrib.clients.wire.runs import effects_table
from pyworkers.protocol.flow.plans import GONE
from pyworkers.protocol.options import OPTIONS, RESERVED
from pyworkers.protocol.status import FIELDS, JobState
from pyworkers.protocol.wire import VERSION
from tests.documents.blocks import DOCS
from tests.helpers.support import ROOT

PAGE = (DOCS / "wire.md").read_text()


def rows(heading: str) -> set[str]:
    """The names in the first column of the first table below a heading."""
    section = PAGE.partition(f" {heading}\n")[2].partition("\n|---")[2].partition("\n\n")[0]
    return {
        name for row in section.splitlines()[1:] for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])
    }


def test_it_has_every_field_of_a_job() -> None:
    written = rows("Fields that a producer writes")
    servers = PAGE.partition("### Fields that servers write")[2].partition("## Enqueue")[0]
    # The envelope has the time instead: `expiry`.
    fields = {name for name, option in OPTIONS.items() if option.is_field} - {"expires_in"} | RESERVED
    missing = {name for name in fields - written if f"`{name}`" not in servers}
    assert missing == set(), "wire.md: a row of 'Fields that a producer writes', or among those of servers"


@pytest.mark.parametrize("source", ["go/job.go", "node/src/options.js", "ruby/lib/pyworkers/options.rb"])
def test_each_client_has_every_option_of_enqueue(source: str) -> None:
    words = {*re.findall(r"\w+", (ROOT / "contrib/clients" / source).read_text())}
    camel = {name: re.sub(r"_(\w)", lambda found: found[1].upper(), name) for name in OPTIONS}
    assert [name for name in OPTIONS if words.isdisjoint((name, camel[name]))] == []


def test_it_has_every_option_of_the_script() -> None:
    head = files()["push.lua"].partition("\n\n")[0].partition("-- Options\n")[2].partition("-- Returns")[0]
    options = set(re.findall(r"^--      (\w+)  ", head, re.MULTILINE))
    section = PAGE.partition("| option | value | for |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == options
    assert len(options) == 8


@pytest.mark.parametrize("name", [*FIELDS, *JobState, *GONE])
def test_it_has_every_field_and_state_that_a_client_reads(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_it_has_every_effect_with_its_keys_and_arguments() -> None:
    assert effects_table() in PAGE, (
        "put the new table into contrib/docs/wire.md: "
        "python -c 'from contrib.clients.wire import runs; print(runs.effects_table())'"
    )


def test_it_is_the_page_of_this_version() -> None:
    assert f"**wire {VERSION}**" in PAGE
    assert all(f"`{name}`" in PAGE for name in files())
