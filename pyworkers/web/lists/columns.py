"""Columns: which facts about its jobs a list shows, kept in a cookie of the browser.

A choice is in the address once, when it is made; all later pages of the same kind read the cookie.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pyworkers.api.browse.pages import ROW
from pyworkers.api.browse.places import Place
from pyworkers.web.security.cookies import cookie_name, set_cookie

PARAMETER = "columns"
_OFFERED = (
    "due", "died", "enqueued_at", "failures", "queue", "error", "created_at", "failed_at", "length", "batch",
    "arguments", "jid",
)  # fmt: skip
"""In the order of the table, after the class, which leads to the job."""
# What the jobs of other places do not have.
_OWN = {"due": ("scheduled", "retries"), "died": ("dead",)}
_YEAR_S = 365 * 86_400


def offered(place: Place) -> list[tuple[str, str]]:
    """The columns to choose from, each with its title."""
    fitting = (name for name in _OFFERED if place.word in _OWN.get(name, (place.word,)))
    kept = (name for name in fitting if not (place.queue and name == "queue"))
    return [(name, ROW.columns[name].title) for name in kept]


def chosen(request: Request, place: Place) -> tuple[str, ...]:
    """The columns that a list shows: those in the address, or in the cookie, or the usual ones."""
    if PARAMETER in request.query_params:
        asked = request.query_params.getlist(PARAMETER)
    else:
        asked = request.cookies.get(cookie_name(request, _kind(place)), "").split(".")
    fitting = tuple(name for name, _ in offered(place) if name in asked)
    usual = {*place.columns, "arguments", "jid"}
    return fitting or tuple(name for name, _ in offered(place) if name in usual)


def keep(request: Request, response: Response, place: Place) -> None:
    """Keep a choice that the address has."""
    if PARAMETER in request.query_params:
        set_cookie(request, response, _kind(place), ".".join(chosen(request, place)), max_age_s=_YEAR_S)


def _kind(place: Place) -> str:
    return f"columns_{'queue' if place.queue else place.word}"
