"""Login and logout: the form for a name and a password, and the way to a provider of OpenID Connect and back.

A dashboard without users has none of these.
"""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pyworkers import logs
from pyworkers.config.checks import OIDC_CALLBACK
from pyworkers.web.rendering import address, is_local, render
from pyworkers.web.roots import home_of, root_of
from pyworkers.web.security import form_of
from pyworkers.web.security.access import Refusal, Users, address_of
from pyworkers.web.security.cookies import LOGIN, SESSION, cookie_name, delete_cookie, set_cookie
from pyworkers.web.security.guard import place_of, visit_of
from pyworkers.web.security.oidc import OidcError, PendingLogin, Provider

_WRONG = "The name or the password is wrong."
_LONGEST_LOGIN_S = 600
_ENTRANCE = ("login", "logout")

log = logs.get_logger()


async def ask(request: Request, text: str = "", target: str = "/", status: int = 200) -> Response:
    """The form. ``target``: the address below the dashboard to which a login leads."""
    name = form_of(request).get("name", "") if _path(request) == "/login" else ""
    users: Users = request.app.state.users
    context = {"title": "Log in", "text": text, "target": target, "name": name, "users": users}
    return await render(request, "login.html", status, **context)


async def ask_again(request: Request, refusal: Refusal) -> Response:
    """The form in place of a page; a login leads to that page."""
    is_entrance = place_of(request) in _ENTRANCE
    asked = form_of(request).get("next") or request.query_params.get("next")
    asked = asked if is_entrance else _asked(request)
    text = refusal.text
    changes = request.method not in ("GET", "HEAD") and not is_entrance
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

    entering = [Route("/login", enter, methods=["POST"])] if users.has_file else []
    return [
        Route("/login", show),
        *entering,
        *(_routes_of(users.provider) if users.provider else []),
        Route("/logout", leave, methods=["POST"]),
    ]


def _routes_of(provider: Provider) -> list[Route]:
    """The way to a provider, and back."""

    async def depart(request: Request) -> Response:
        below = root_of(request.scope).removeprefix(home_of(request.scope))
        login = PendingLogin.to(below + _own(request.query_params.get("next", "/")))
        try:
            address = await provider.address(login, _back(request))
        except OidcError as error:
            raise _refused(error) from error
        answer = RedirectResponse(address, 303)
        set_cookie(request, answer, LOGIN, str(login), max_age_s=_LONGEST_LOGIN_S)
        return answer

    async def arrive(request: Request) -> Response:
        login = PendingLogin.parse(request.cookies.get(cookie_name(request, LOGIN), ""))
        visit = visit_of(request)
        try:
            person = await provider.person(login, request.query_params, _back(request), address_of(request))
            cookie = provider.open_session(person, visit.secret if visit else b"")
        except OidcError as error:
            raise _refused(error) from error
        answer = RedirectResponse(home_of(request.scope) + _own(login.target if login else "/"), 303)
        set_cookie(request, answer, SESSION, cookie)
        delete_cookie(request, answer, LOGIN)
        return answer

    def _back(request: Request) -> str:
        own = f"{request.url.scheme}://{request.headers['host']}{home_of(request.scope)}{OIDC_CALLBACK}"
        return provider.redirect_url or own

    def _refused(error: OidcError) -> Refusal:
        log.warning("web.oidc_failed", provider=provider.name, error=error.reason)
        return Refusal(error.status, error.text, login=True)

    return [Route("/login/oidc", depart), Route(OIDC_CALLBACK, arrive)]


def _asked(request: Request) -> str:
    """The page of a request, with its filter and its rank; a form goes to the address of its page."""
    query = request.url.query
    return f"{quote(_path(request))}?{query}" if query else quote(_path(request))


def _path(request: Request) -> str:
    path: str = request.url.path
    return path.removeprefix(root_of(request.scope))


def _own(target: str) -> str:
    """The target if it is a path below the dashboard, else its first page: no login leads elsewhere."""
    is_page = target.removeprefix("/").partition("?")[0].partition("/")[0] not in _ENTRANCE
    return target if is_local(target) and is_page else "/"
