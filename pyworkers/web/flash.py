"""Flash: one sentence about the last action, shown once, on the page after it.

It travels in a cookie, because the processes of a dashboard share no memory. The cookie is
signed, because the other ports and names of the host can set cookies, too.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from pyworkers.web.security.cookies import FLASH, cookie_name, delete_cookie, set_cookie
from pyworkers.web.security.guard import visit_of

_MOST_CHARACTERS = 500
_TTL_S = 60


class Flash(NamedTuple):
    """The sentence, True for an error, and the address at which what was done can be undone."""

    text: str
    failed: bool = False
    undo: str = ""


def give(request: Request, response: Response, text: str, *, failed: bool = False, undo: str = "") -> None:
    """Show ``text`` on the next page; ``failed``: as an error; ``undo``: with a button."""
    visit = visit_of(request)
    if visit is None:
        return
    said = f"{'!' if failed else '.'}{undo}\n{text[:_MOST_CHARACTERS]}"
    value = urlsafe_b64encode(said.encode(errors="replace")).decode()
    set_cookie(request, response, FLASH, f"{value}.{_signature(visit.secret, value)}", max_age_s=_TTL_S)


def take(request: Request) -> Flash | None:
    """The sentence for this page; None if there is none."""
    visit = visit_of(request)
    value, _, signature = request.cookies.get(cookie_name(request, FLASH), "").partition(".")
    if visit is None or not hmac.compare_digest(signature.encode(), _signature(visit.secret, value).encode()):
        return None
    text = urlsafe_b64decode(value).decode()
    undo, _, said = text[1:].partition("\n")
    return Flash(said, text[0] == "!", undo)


def clear(request: Request, response: Response) -> None:
    """Forget the sentence that this answer shows."""
    if cookie_name(request, FLASH) in request.cookies:
        delete_cookie(request, response, FLASH)


def _signature(secret: bytes, value: str) -> str:
    return hmac.digest(secret, f"flash\0{value}".encode(), "sha256").hex()
