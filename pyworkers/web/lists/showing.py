"""Showing: jobs as rows of a page, with their texts and the addresses that they link. Reads no Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from pyworkers.api.browse.masking import masked
from pyworkers.api.browse.pages import Row
from pyworkers.api.browse.places import Place
from pyworkers.api.record import JobRecord, as_text
from pyworkers.web import names
from pyworkers.web.lists.asking import encoded
from pyworkers.web.rendering import address

_MOST_IN_A_LINK = 500
NO_ID = "-"
"""Stands in the address of a job for an id that is missing, or too long."""


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A job of a list: ``args`` is JSON text without its brackets, ``href`` leads to the job."""

    row: Row
    job: JobRecord
    args: str
    href: str
    since: float | None


def shown_row(request: Request, place: Place, row: Row, mask: Collection[str]) -> ShownRow:
    """A row with its texts."""
    return ShownRow(
        row, row.job, args_text(row.job, mask), job_href(request, row, place), place.since(row.job, row.score)
    )


def args_text(job: JobRecord, mask: Collection[str]) -> str:
    """The arguments as JSON text, without the brackets of the list."""
    if job.cut and not job.args:
        return f"({job.length:,} bytes)"
    return ", ".join(map(json_text, masked(job.args, mask)))


def json_text(value: Any) -> str:
    """A value as JSON; a text with its quotes."""
    return as_text([value])[1:-1]


def job_href(request: Request, row: Row, place: Place) -> str:
    """The address of a job, with the place where it was seen; a long id or none is left out."""
    jid = row.job.jid if 0 < len(names.encode(row.job.jid)) <= _MOST_IN_A_LINK else NO_ID
    return address(request, "jobs", jid, **{"in": encoded(place), "at": row.at})


def segments_of(place: Place) -> tuple[str, ...]:
    """The segments of the address of a place."""
    return ("queues", place.queue) if place.queue else (place.word,)


def most_frequent(texts: Iterable[str], most: int = 8) -> list[tuple[str, int]]:
    """The texts that links can name, with their numbers, the most frequent first."""
    return Counter(text for text in texts if 0 < len(text) <= _MOST_IN_A_LINK).most_common(most)
