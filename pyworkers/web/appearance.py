"""Appearance: the theme and the time zone that a person has chosen, kept in cookies of the browser."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response

from pyworkers.web.security.cookies import cookie_name, set_cookie

THEMES = ("light", "dark")
_THEME, _ZONE = "theme", "zone"
_YEAR_S = 365 * 86_400


def theme_of(request: Request) -> str:
    """``light`` or ``dark``; empty: as the system prefers."""
    kept = request.cookies.get(cookie_name(request, _THEME), "")
    return kept if kept in THEMES else ""


def zone_of(request: Request) -> str:
    """The IANA name of the zone in which times are shown; empty: the zone of the browser."""
    kept = request.cookies.get(cookie_name(request, _ZONE), "")
    return kept if is_zone(kept) else ""


@lru_cache(maxsize=256)
def is_zone(name: str) -> bool:
    """True for the IANA name of a zone."""
    try:
        return bool(ZoneInfo(name)) and name.isprintable()
    except (KeyError, ValueError, OSError):
        return False


def keep(request: Request, response: Response, theme: str, zone: str) -> None:
    """Keep a choice for a year."""
    set_cookie(request, response, _THEME, theme, max_age_s=_YEAR_S)
    set_cookie(request, response, _ZONE, zone, max_age_s=_YEAR_S)
