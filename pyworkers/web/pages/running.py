"""Running: the running jobs of all servers, the longest first; cancel one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import Cancelled, Work, WorkPage, WorkSet
from pyworkers.api.processes import request_numbers
from pyworkers.api.running import read_works
from pyworkers.web import names
from pyworkers.web.acting import done, perform
from pyworkers.web.lists.showing import args_text
from pyworkers.web.live.running import cells, key_of, total
from pyworkers.web.paging import ROWS, first_of, pager
from pyworkers.web.rendering import own_address, render
from pyworkers.web.security import form_of
from pyworkers.web.site import site_of

_MOST_BYTES = 20_000
_SENTENCES = {
    Cancelled.RUNNING: "{} is cancelled: JobCancelled is raised in it, and its worker is killed 2 s later.",
    Cancelled.ELSEWHERE: "{} runs in Sidekiq, which ends it if it is iterable; otherwise it continues.",
    Cancelled.UNKNOWN: "{} does not run there any more: nothing was changed.",
}


async def show(request: Request) -> Response:
    """A page of the running jobs, of all servers or of one."""
    site = site_of(request)
    asked = request.query_params.get("server", "")
    identity = names.decode(asked)
    if identity and not names.is_key(identity):
        raise HTTPException(404, "No server can have this name.")
    await site.read(request_numbers(site.keys))
    works = await site.read(read_works(site.keys, first_of(request), ROWS, identity))
    place = pager(request, "running", total=works.total, server=asked)
    return await render(
        request, "running.html", title="Running", works=works, rows=rows_of(works, site.settings.mask),
        total=total(works.total), identity=identity, place=place,
    )  # fmt: skip


def rows_of(page: WorkPage, mask: Collection[str]) -> list[tuple[Work, str, Mapping[str, Markup], str]]:
    """Each job with its name in the live parts, its cells that change, and its arguments."""
    return [(work, key_of(work), cells(work, page.at), _arguments(work, mask)) for work in page.works]


def _arguments(work: Work, mask: Collection[str]) -> str:
    """The arguments as text; of a large job its size alone, as fifty of them would make the page late."""
    return args_text(work, mask) if work.length <= _MOST_BYTES else f"({work.length:,} bytes)"


async def change(request: Request) -> Response:
    """Cancel a running job."""
    if form_of(request).get("action") != "cancel":
        raise HTTPException(400, "This action is unknown.")
    return await cancel(request)


async def cancel(request: Request) -> Response:
    """Cancel the running job that a form names, and return to the page with the form."""
    site, form = site_of(request), form_of(request)
    jid, identity, queue = (names.decode(form.get(name, "")) for name in ("jid", "server", "queue"))
    if not all(map(names.is_key, (jid, identity, queue))):
        raise HTTPException(400, "This job has no valid id, queue or server.")
    works = WorkSet(site.admin)
    result = await perform(request, "job.cancel", jid, lambda: works.cancel(jid, identity, queue))
    return done(
        request, own_address(request), _SENTENCES[result].format(jid), failed=result is not Cancelled.RUNNING
    )


ROUTES = [Route("/running", show), Route("/running", change, methods=["POST"])]
