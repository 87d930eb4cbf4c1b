"""Refusing: the answers to requests that are not executed, as the one who asks can read them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from pyworkers.web.acting import is_sent
from pyworkers.web.pages import login
from pyworkers.web.rendering import render
from pyworkers.web.security.access import Refusal
from pyworkers.web.security.guard import place_of

_TITLES = {403: "Not allowed", 413: "Too large", 429: "Too many attempts"}
_UNNAMED = "Log in, or send a header Authorization."


async def refuse(request: Request, refusal: Refusal) -> Response:
    """A page; JSON below /api, plain text for the event stream and for a host that is not ours."""
    place = place_of(request)
    text = refusal.text or (_broken(request) if refusal.status == 500 else _UNNAMED)
    if place == "api":
        return JSONResponse({"error": text}, refusal.status, refusal.headers)
    if place == "events" or refusal.status == 400:
        return PlainTextResponse(f"{text}\n", refusal.status, refusal.headers)
    if refusal.login:
        return await login.ask_again(request, refusal)
    title = _TITLES.get(refusal.status, f"Error {refusal.status}")
    answer = await render(request, "error.html", refusal.status, title=title, text=text)
    answer.headers.update(refusal.headers)
    return answer


def _broken(request: Request) -> str:
    """The words about an error of the dashboard itself."""
    if request.method in ("GET", "HEAD"):
        return "The dashboard has failed: its log says why."
    if is_sent(request):
        return "Perhaps done: the dashboard has failed. Look before you try again; its log says why."
    return "Not done: the dashboard has failed. Its log says why."
