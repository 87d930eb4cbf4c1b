"""Showing: jobs as rows of a page, with their texts and the addresses that they link. Reads no Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from pyworkers.api.browse.masking import masked
from pyworkers.api.browse.pages import ROW, Row
from pyworkers.api.browse.places import Place
from pyworkers.api.record import JobRecord, as_text
from pyworkers.web import names
from pyworkers.web.lists.asking import encoded
from pyworkers.web.lists.columns import chosen
from pyworkers.web.rendering import address, linkable
from pyworkers.web.showing import cut, expandable, shown, visible
from pyworkers.web.tables import Listing, Sort

_MOST_IN_A_LINK, _MOST_NAMED = 500, 8
# A longer id is cut to its beginning, which is enough to tell one from another.
_LONGEST_ID, _ID = 12, 8
NO_ID = "-"
"""Replaces an id that is missing, or too long, in the address of a job."""


def listing(
    request: Request, place: Place, rows: Sequence[Row], now: float, mask: Collection[str], sort: Sort
) -> Listing[Row]:
    """The table of these jobs of a place. ``sort``: the order of the place, by its time."""
    html: Mapping[str, Callable[[Row], Markup]] = {
        "class": lambda row: class_of(request, row.job, job_href(request, row, place)),
        "error": lambda row: _error(row.job),
        "arguments": lambda row: Markup("<code>{}</code>").format(expandable(args_text(row.job, mask))),
        "jid": lambda row: jid_of(row.job, job_href(request, row, place)),
    }
    shown_columns = ROW.shown("class", *chosen(request, place))
    sorts = dict.fromkeys(("due", "died", "enqueued_at"), sort)

    def queue_of(row: Row) -> str:
        return place.queue or row.job.queue

    return Listing(request, shown_columns, rows, now, html=html, sorts=sorts, queue_of=queue_of)


def class_of(request: Request, job: JobRecord, href: str) -> Markup:
    """The class, which leads to the job if it has an address, and the tags."""
    name = shown(job.job_class, 120) if job.job_class else Markup('<span class="warn">no class</span>')
    if job.unreadable:
        name = Markup('<span class="bad">not a valid job</span>')
    linked = Markup('<a href="{}">{}</a>').format(href, name) if href else name
    tags = tags_of(request, job.tags[:5])
    return Markup("{} {}").format(linked, tags) if tags else linked


def tags_of(request: Request, tags: Sequence[str]) -> Markup:
    """Tags, each of which leads to all jobs that have it."""
    return Markup(" ").join(
        Markup('<a class="tag" href="{}">{}</a>').format(address(request, "tags", tag), shown(tag, 40))
        if linkable(tag)
        else Markup('<span class="tag">{}</span>').format(shown(tag, 40))
        for tag in tags
    )


def _error(job: JobRecord) -> Markup:
    """The last error; why the bytes are not a valid job."""
    if job.unreadable:
        return Markup('<span class="bad">{}</span>').format(expandable(job.unreadable))
    return expandable(": ".join(filter(None, (job.error_class, job.error_message))))


def jid_of(job: JobRecord, href: str) -> Markup:
    """The beginning of the id, which leads to the job if it has an address; the script copies the whole."""
    if not job.jid:
        name = "not read" if job.cut else "no id"
        return Markup('<a href="{}">{}</a>').format(href, name) if href else Markup(name)
    code = Markup("<code>{}</code>").format(shown(job.jid if len(job.jid) <= _LONGEST_ID else job.jid[:_ID]))
    named = (
        Markup('<a href="{}" title="{}">{}</a>').format(href, visible(cut(job.jid)), code) if href else code
    )
    if len(job.jid) > _MOST_IN_A_LINK:
        return named
    form = ' <button type="button" class="copy" data-copy="{}" aria-label="Copy the id {}" hidden></button>'
    return named + Markup(form).format(visible(job.jid), visible(job.jid[:_ID]))


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
    # The page of a job finds it from the usual end, near the place that it has there.
    at = "" if place.reversed else row.at
    return address(request, "jobs", jid, **{"in": encoded(place), "at": at})


def href_of(request: Request, jid: str) -> str:
    """The address of the job with this id; empty if an address cannot hold it."""
    return address(request, "jobs", jid) if jid and linkable(jid) else ""


def segments_of(place: Place) -> tuple[str, ...]:
    """The segments of the address of a place; deleted jobs are put back from the audit."""
    if place.deletion:
        return ("audit",)
    return ("queues", place.queue) if place.queue else (place.word,)


def most_frequent(texts: Iterable[str]) -> list[tuple[str, int]]:
    """The texts that links can name, with their numbers, the most frequent first."""
    return Counter(text for text in texts if 0 < len(text) <= _MOST_IN_A_LINK).most_common(_MOST_NAMED)
