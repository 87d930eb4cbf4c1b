"""Alarms: those that a process watches, with their state, and the last messages."""

from __future__ import annotations

import time
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pyworkers.api.alarms import ACTIONS, ALARM, ALARMS, SENT, ArmedAlarm, read_alarms
from pyworkers.web.buttons import forms
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.rendering import render
from pyworkers.web.several import sites_of
from pyworkers.web.showing import both, shown
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing

_ALARM_COLUMNS = ALARM.shown("name", "state", "when", "match", "to", "since", "message")


async def show(request: Request) -> Response:
    """The page. One process watches all Redis servers, and keeps what it knows in the first one."""
    sites, site = sites_of(request), site_of(request)
    if sites.several and not sites.parts:
        return RedirectResponse(sites.address(request, next(iter(sites.by_name)), "alarms"), status_code=303)
    found = await site.read(read_alarms(site.keys))
    now = time.time()
    html = {"message": _message}
    alarms = Listing(request, _ALARM_COLUMNS, found.alarms, now, html=html)
    sent = Listing(request, SENT.shown(), found.sent, now, html={"at": lambda one: both(one.at, now)})
    return await render(
        request, "alarms.html", title="Alarms", found=found, alarms=alarms, sent=sent, actions=ACTIONS
    )


def _message(alarm: ArmedAlarm) -> Markup:
    """What is wrong, and why a message was not sent."""
    text = shown(alarm.message)
    if not alarm.error:
        return text
    number = f"{alarm.pending:,} not sent yet" if alarm.pending else "Given up"
    return Markup('{}<br><span class="bad">{}: {}</span>').format(text, number, shown(alarm.error))


async def _alarms(ask: CheckedRequest) -> dict[str, Any]:
    return (await ask.site.read(read_alarms(ask.keys))).as_dict()


ROUTES = [Route("/alarms", show), forms("/alarms", ACTIONS)]
RESOURCES = (
    Resource(
        "/alarms",
        "The alarms of `pyworkers alarms`, and their last messages.",
        _alarms,
        ALARMS.schema,
        actions=ACTIONS,
        rows="sent",
    ),
)
