"""Running: the running jobs of all servers, the longest first; cancel one."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import Cancelled, WorkSet
from pyworkers.api.processes import request_numbers
from pyworkers.api.running import read_works
from pyworkers.web import names
from pyworkers.web.acting import done, perform
from pyworkers.web.live.running import listing, total
from pyworkers.web.paging import ROWS, first_of, pager
from pyworkers.web.rendering import own_address, render
from pyworkers.web.security import form_of
from pyworkers.web.site import site_of

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
        request, "running.html", title="Running", works=works, total=total(works.total),
        rows=listing(request, works, site.settings.mask), identity=identity, place=place,
    )  # fmt: skip


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
