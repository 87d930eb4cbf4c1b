"""Table: a list of the JSON as CSV (RFC 4180), page after page of the list.

Runs in the event loop of the dashboard. It never keeps more than one page.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.responses import StreamingResponse

from pyworkers.api.columns import REDIS
from pyworkers.web.json.resources import AWAY, Resource

MOST_ROWS, LONGEST_S = 100_000, 60.0
"""The most rows of one file, and how long it is written: a search of millions of jobs takes minutes."""
_MORE = "more: "
"""Before the place where the list goes on, in the last line of a file that ends before its list."""
# A spreadsheet takes a text that begins so for a formula, and runs it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

Read = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Reads the page of a list that these parameters name: its JSON."""


async def answer(
    resource: Resource, given: Mapping[str, Any], read: Read, *, whole: bool
) -> StreamingResponse:
    """The rows of a list as a file. ``whole``: all pages, up to MOST_ROWS and for LONGEST_S.

    The first page is read before the answer begins, so that its errors have a status. A later error ends the
    connection within the file.
    """
    columns = columns_of(resource)
    if whole:
        given = {**given, **resource.widest}
    first = await read(given)

    async def lines() -> AsyncIterator[str]:
        yield _lines([columns])
        page, asked, done, end = first, given, 0, time.monotonic() + LONGEST_S
        while True:
            rows = page[resource.rows] if resource.rows else page
            yield _lines([[_cell(row.get(column)) for column in columns] for row in [*rows, *_away(page)]])
            done += len(rows)
            following = resource.following(asked, page, len(rows)) if whole else None
            if following is None:
                return
            if done >= MOST_ROWS or time.monotonic() >= end:
                yield _lines([[f"{_MORE}{_place_in(following)}", *[""] * (len(columns) - 1)]])
                return
            asked = following
            page = await read(asked)

    name = "-".join(segment for segment in resource.segments if segment[0] != "{")
    return StreamingResponse(
        lines(),
        media_type="text/csv",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )


def columns_of(resource: Resource) -> list[str]:
    """The columns of the file."""
    has_away = AWAY in resource.schema.get("properties", ())
    return [*resource.row_schema["properties"], *([AWAY] if has_away else [])]


def _away(page: Any) -> list[Mapping[str, str]]:
    """The rows for the Redis servers that are away: their names, and why."""
    away = page.get(AWAY, {}) if isinstance(page, Mapping) else {}
    return [{REDIS.name: name, AWAY: reason} for name, reason in away.items()]


def _place_in(given: Mapping[str, Any]) -> str:
    """The parameter with which a list goes on, as in an address."""
    name = next(name for name in ("cursor", "after", "first") if given.get(name))
    return urlencode({name: given[name]}, errors="surrogateescape")


def _lines(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A value of JSON in a cell. A text that would be a formula gets an apostrophe; an object is JSON."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else value
