"""Login and logout: the form for a name and a password; a dashboard without users has neither."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pyworkers.web.rendering import address, render
from pyworkers.web.security import form_of
from pyworkers.web.security.access import Refusal, Users
from pyworkers.web.security.cookies import SESSION, delete_cookie, set_cookie
from pyworkers.web.security.guard import visit_of

_WRONG = "The name or the password is wrong."
_LONGEST_TARGET = 4000
_ENTRANCE = ("/login", "/logout")


async def ask(request: Request, text: str = "", target: str = "/", status: int = 200) -> Response:
    """The form. ``target``: the address below the dashboard to which a login leads."""
    name = form_of(request).get("name", "") if _path(request) == "/login" else ""
    context = {"title": "Log in", "text": text, "target": target, "name": name}
    return await render(request, "login.html", status, **context)


async def ask_again(request: Request, refusal: Refusal) -> Response:
    """The form in place of a page; a login leads to that page."""
    asked = form_of(request).get("next") if _path(request) == "/login" else _asked(request)
    text = refusal.text
    changes = request.method not in ("GET", "HEAD") and _path(request) not in _ENTRANCE
    if changes and refusal.status == 401:
        text = f"{text} Nothing was done: log in, and try again.".strip()
    answer = await ask(request, text, _own(asked or "/"), refusal.status)
    answer.headers.update(refusal.headers)
    return answer


def routes(users: Users) -> list[Route]:
    """The pages for these users."""

    async def show(request: Request) -> Response:
        return await ask(request, target=_own(request.query_params.get("next", "/")))

    async def enter(request: Request) -> Response:
        form = form_of(request)
        target = _own(form.get("next", "/"))
        visit = visit_of(request)
        secret = visit.secret if visit else b""
        cookie = await users.login(request, form.get("name", ""), form.get("password", ""), secret)
        if cookie is None:
            return await ask(request, _WRONG, target, 401)
        answer = RedirectResponse(address(request).removesuffix("/") + target, 303)
        set_cookie(request, answer, SESSION, cookie)
        return answer

    async def leave(request: Request) -> Response:
        visit = visit_of(request)
        if visit and visit.identity and visit.identity.ticket:
            await users.logout(visit.identity.ticket)
        answer = RedirectResponse(address(request, "login"), 303)
        delete_cookie(request, answer, SESSION)
        return answer

    return [
        Route("/login", show),
        Route("/login", enter, methods=["POST"]),
        Route("/logout", leave, methods=["POST"]),
    ]


def _asked(request: Request) -> str:
    """The page of a request, with its filter and its rank; a form goes to the address of its page."""
    query = request.url.query
    return f"{quote(_path(request))}?{query}" if query else quote(_path(request))


def _path(request: Request) -> str:
    path: str = request.url.path
    return path.removeprefix(request.scope.get("root_path", "").rstrip("/"))


def _own(target: str) -> str:
    """The target if it is a path below the dashboard, else its first page: no login leads elsewhere."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\"))
    is_plain = target.isascii() and target.isprintable() and " " not in target and "\\" not in target
    is_page = target.partition("?")[0] not in _ENTRANCE
    return target if is_path and is_plain and is_page and len(target) <= _LONGEST_TARGET else "/"
