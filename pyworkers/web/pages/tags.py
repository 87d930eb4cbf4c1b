"""Tags: the jobs with one tag, by the places that have them, and the running ones; cancels all of them.

Runs in the event loop of the dashboard. Each place is searched for a short time; its list goes on.
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.places import DEAD, RETRIES, SCHEDULED, Place
from pyworkers.api.browse.search import Sought, position_of, read_matches
from pyworkers.api.running import CANCEL_TAG, WorkPage, read_tagged
from pyworkers.api.schemas import COUNT
from pyworkers.errors import StoreError
from pyworkers.web import names
from pyworkers.web.buttons import forms
from pyworkers.web.json.resources import Resource
from pyworkers.web.lists.showing import segments_of
from pyworkers.web.lists.words import title_of
from pyworkers.web.live.reader import reader_of
from pyworkers.web.pages.running import held
from pyworkers.web.rendering import address, linkable, render
from pyworkers.web.several import sites_of
from pyworkers.web.showing import counted, visible
from pyworkers.web.site import site_of
from pyworkers.web.tables import joined

_ACTIONS = (CANCEL_TAG,)
# With three sets and these queues, at most a second of searches.
_MOST_QUEUES = 17


class Searched(NamedTuple):
    """A place with the address of its jobs that have the tag, and how many were found.

    ``is_without``: it has none.
    """

    title: str
    href: str
    about: str
    is_without: bool = False


class _Tagged(NamedTuple):
    """What one Redis has; ``further`` queues were not searched."""

    works: WorkPage
    places: list[Searched]
    further: int

    @property
    def nothing(self) -> bool:
        """True if no job has the tag."""
        is_searched = self.works.complete and not self.further
        return is_searched and not self.works.total and all(place.is_without for place in self.places)


async def show(request: Request) -> Response:
    """The page of one tag."""
    sites, tag = sites_of(request), names.decode(request.path_params["tag"])
    if not linkable(tag):
        raise HTTPException(404, "No job can have this tag.")
    found = await sites.each(request, partial(_read, tag))
    mask, columns = site_of(request).settings.mask, ("run_at", "identity")
    tables = {name: held(sites.at(request, name), one.works, mask, columns) for name, one in found.items()}
    return await render(
        request,
        "tag.html",
        title=f"Tag {visible(tag)}",
        tag=tag,
        parts=[(name if sites.parts else "", one) for name, one in found.items()],
        running=joined(request, tables, lambda work: work.run_at),
        actions=_ACTIONS,
    )


async def _read(tag: str, request: Request) -> _Tagged:
    site = site_of(request)
    works = await site.read(read_tagged(site.keys, tag))
    filled = [
        queue for queue in (await reader_of(request).recent()).queues if queue.size and linkable(queue.name)
    ]
    largest = sorted(filled, key=lambda queue: -queue.size)[:_MOST_QUEUES]
    places = [SCHEDULED, RETRIES, DEAD, *(Place.of_queue(queue.name) for queue in largest)]
    found = [await _search(request, place, tag) for place in places]
    return _Tagged(works, [one for one in found if one is not None], len(filled) - len(largest))


async def _search(request: Request, place: Place, tag: str) -> Searched | None:
    """What a short search finds in a place; None for a queue without such a job."""
    site = site_of(request)
    sought = Sought(place, Filter(tag=tag), time.time(), site.settings.mask)
    is_without = False
    try:
        found = await site.read(read_matches(site.keys, sought, position_of("")))
    except StoreError as error:
        if error.code:
            raise
        about = error.message
    else:
        is_without = not found.rows and not found.cursor
        if place.queue and is_without:
            return None
        about = counted(len(found.rows), "job") + (", not searched to the end" if found.cursor else "")
    href = address(request, *segments_of(place), tag=visible(tag))
    return Searched(title_of(place), href, about, is_without)


ROUTES = [Route("/tags/{tag}", show), forms("/tags/{tag}", _ACTIONS)]
RESOURCES = (Resource("/tags/{tag}", "All jobs with a tag, in all places.", None, COUNT, actions=_ACTIONS),)
