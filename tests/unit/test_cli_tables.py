"""Tables: columns stay columns, and on a terminal the least important one is shortened first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyworkers.api.locks import LOCK
from pyworkers.cli import check, cron, queues, stats, top
from pyworkers.cli.flow import batches, limits
from pyworkers.cli.listing import DEAD, QUEUE, RETRIES, SCHEDULED
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.tables import TableColumn, lines
from pyworkers.cli.text import width

JOBS = (
    TableColumn("jid"),
    TableColumn("class", cut=2),
    TableColumn("n", right=True),
    TableColumn("error", cut=1),
)
ALL = {
    "batches": Form(0).heads(batches._BATCHES.columns),
    "check": check._GROUPS,
    "cron": Form(0).heads(cron._ENTRIES.columns),
    "groups": Form(0).heads(top._GROUPS),
    "limits": Form(0).heads(limits._LIMITS.columns),
    "locks": Form(0).heads(LOCK.shown()),
    "processes": Form(0).heads(top._PROCESSES),
    "queues": Form(0).heads(queues._QUEUES.columns),
    "sizes": Form(0).heads(stats._SIZES),
    "top": Form(0, brief=True).heads(top._QUEUES),
    "workers": Form(0).heads(top._WORKS),
    **{place.name: Form(0).heads(place.columns) for place in (QUEUE, SCHEDULED, RETRIES, DEAD)},
}


def shown(rows: Sequence[Sequence[str]], cells: int | None) -> list[str]:
    return list(lines(JOBS, rows, cells))


def test_columns_are_aligned_by_cells() -> None:
    rows = [("語", "A", "10", "x"), ("x", "語語語", "5", "")]
    assert shown(rows, None) == [
        "jid  class    n  error",
        "語   A       10  x",
        "x    語語語   5",
    ]


def test_the_least_important_column_is_shortened_first() -> None:
    row = ("b4a577", "ImportCustomers", "12", "ValueError: no such customer")
    assert shown([row], 40)[1] == "b4a577  ImportCustomers  12  ValueError…"
    assert shown([row], 26)[1] == "b4a577  Import…  12  Valu…"
    assert shown([row], None)[1] == "  ".join(row)


def test_a_terminal_too_narrow_for_the_important_columns_cuts_the_line() -> None:
    assert shown([("b4a577", "Add", "12", "")], 10) == ["jid     c…", "b4a577  A…"]


def test_wide_characters_count_as_the_terminal_shows_them() -> None:
    [_, line] = shown([("j", "語" * 20, "1", "e\u0301" * 30)], 30)
    assert line == "j    語語語語語語語…  1  " + "e\u0301" * 4 + "…"


def test_a_wider_text_below_the_rows_that_were_measured_is_cut_as_well() -> None:
    rows = [("j", "Add", "1", "x")] * 100 + [("j", "A" * 50, "1", "語" * 50)]
    assert max(map(width, shown(rows, 80))) <= 80
    assert shown(rows, None)[-1] == f"j    {'A' * 50}  1  {'語' * 50}"


def test_a_table_begins_before_its_last_row_is_known() -> None:
    rows = iter([("x",)] * 100 + [("longer",)] * 10)
    found = lines((TableColumn("a"),), rows)
    assert next(found) == "a"
    assert next(rows) == ("longer",)
    assert list(found)[-1] == "longer"


@pytest.mark.parametrize("cells", [40, 80, 132])
@pytest.mark.parametrize("name", ALL)
def test_no_table_is_wider_than_its_terminal(name: str, cells: int) -> None:
    columns = ALL[name]
    rows = [["語" * 300 for _ in columns], ["x" * 3000 for _ in columns], ["" for _ in columns]]
    assert max(map(width, lines(columns, rows, cells))) <= cells


@pytest.mark.parametrize("name", ALL)
def test_80_cells_hold_the_titles_of_every_table_and_something_to_shorten(name: str) -> None:
    columns = ALL[name]
    [header] = lines(columns, [], 80)
    assert header == "  ".join(column.title for column in columns)
    order = [column.cut for column in columns if column.cut]
    assert order
    assert len(set(order)) == len(order)
