"""Table: a list of the JSON as CSV (RFC 4180), page after page of the list.

Runs in the event loop of the dashboard. It never keeps more than one page.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.responses import StreamingResponse

from pyworkers.api.columns import REDIS
from pyworkers.web.json.resources import AWAY, Resource

MOST_ROWS = 100_000
"""The most rows of one file."""
# A spreadsheet takes a text that begins so for a formula, and runs it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

Read = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Reads the page of a list that these parameters name: its JSON."""


async def answer(
    resource: Resource, given: Mapping[str, Any], read: Read, *, whole: bool
) -> StreamingResponse:
    """The rows of a list as a file. ``whole``: all pages from the first one on, up to MOST_ROWS.

    The first page is read before the answer begins, so that its errors have a status. A later error ends the
    connection within the file.
    """
    columns = columns_of(resource)
    if whole:
        given = {**given, **resource.widest}
    first = await read(given)

    async def lines() -> AsyncIterator[str]:
        yield _lines([columns])
        page, asked, done = first, given, 0
        while True:
            rows = page[resource.rows] if resource.rows else page
            yield _lines([[_cell(row.get(column)) for column in columns] for row in [*rows, *_away(page)]])
            done += len(rows)
            following = resource.following(asked, page, len(rows)) if whole and done < MOST_ROWS else None
            if following is None:
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


def _lines(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A value of JSON in a cell. A text that would be a formula gets an apostrophe; an object is JSON."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else value
