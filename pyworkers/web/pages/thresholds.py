"""Thresholds, from the configuration and from people; sets and removes them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pyworkers.api.schemas import array
from pyworkers.api.thresholds import (
    ACTIONS,
    MEASURES,
    REMOVE,
    SET,
    THRESHOLD,
    ListedThreshold,
    listed,
    plain_queue,
    read_thresholds,
)
from pyworkers.errors import BadArgumentError
from pyworkers.web import names
from pyworkers.web.acting import carry_out
from pyworkers.web.buttons import act, said
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.rendering import own_address, render
from pyworkers.web.security import Form, form_of
from pyworkers.web.several import sites_of
from pyworkers.web.site import Site, site_of
from pyworkers.web.tables import Listing

_COLUMNS = THRESHOLD.shown("match", "counts", "above", "set_in")


async def show(request: Request, refusal: str = "") -> Response:
    """The page; after a ``refusal``, with the fields of the threshold that was not set.

    The first Redis keeps the thresholds for all.
    """
    sites = sites_of(request)
    if sites.several and not sites.parts:
        first = next(iter(sites.by_name))
        return RedirectResponse(sites.address(request, first, "thresholds"), status_code=303)
    rows = await _read(site_of(request))
    table = Listing(request, _COLUMNS, rows, 0.0, queue_of=lambda one: plain_queue(one.threshold.match))
    return await render(
        request, "thresholds.html", title="Thresholds", thresholds=table, remove=[REMOVE], measures=MEASURES,
        typed=form_of(request) if refusal else {}, refused=refusal,
    )  # fmt: skip


async def _read(site: Site) -> list[ListedThreshold]:
    return listed(site.settings.thresholds, await site.read(read_thresholds(site.keys)))


async def change(request: Request) -> Response:
    """Set a threshold, or remove one."""
    form, here = form_of(request), own_address(request)
    if form.get("action") != SET.word:
        return await act(request, ACTIONS, here)
    try:
        outcome = await carry_out(request, SET, {"threshold": _text_of(form)})
    except BadArgumentError as error:
        return await show(request, str(error))
    return said(request, outcome, here)


def _text_of(form: Form) -> str:
    """The threshold in a form: of its fields, or of a row, in which only the number changes."""
    own = f"{form.get('match', '').strip()} {form.get('measure', '')}"
    return f"{names.decode(form['row']) if 'row' in form else own} > {form.get('above', '').strip()}"


async def _thresholds(ask: CheckedRequest) -> list[dict[str, Any]]:
    return [THRESHOLD.as_dict(one) for one in await _read(ask.site)]


ROUTES = [Route("/thresholds", show), Route("/thresholds", change, methods=["POST"])]
RESOURCES = (
    Resource(
        "/thresholds",
        "The thresholds of the configuration, and the ones that people have set.",
        _thresholds,
        array(THRESHOLD.schema),
        actions=ACTIONS,
        rows="",
    ),
)
