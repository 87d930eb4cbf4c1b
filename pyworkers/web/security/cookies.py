"""Cookies: their names, their path, and who may read them: the browser alone."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pyworkers.web.roots import home_of

SESSION = "session"
VISITOR = "visitor"
START = "start"
FLASH = "flash"
LOGIN = "login"


def cookie_name(request: Request, kind: str) -> str:
    """The name of a cookie; with the port, because browsers share cookies between the ports of a host."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"pyworkers_{kind}_{port}" if port.isdecimal() else f"pyworkers_{kind}"


def set_cookie(
    request: Request, response: Response, kind: str, value: str, *, max_age_s: int | None = None
) -> None:
    """Set it until the browser is closed, or for ``max_age_s``.

    Lax: with Strict, a link in a chat would lead to the login.
    """
    response.set_cookie(
        cookie_name(request, kind),
        value,
        max_age=max_age_s,
        path=f"{home_of(request.scope)}/",
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


def delete_cookie(request: Request, response: Response, kind: str) -> None:
    """Delete it."""
    response.delete_cookie(
        cookie_name(request, kind), path=f"{home_of(request.scope)}/", httponly=True, samesite="lax"
    )
