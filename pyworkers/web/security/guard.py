"""Guard: the middleware before all pages. It decides who looks, and refuses what no page of ours has sent.

Runs in the event loop of the dashboard, for each request: host, viewer, size, origin, token, role.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyworkers.http.hosts import Hosts
from pyworkers.web.roots import root_of
from pyworkers.web.security import origins
from pyworkers.web.security.access import TOKEN, Access, Identity, Refusal, Viewer
from pyworkers.web.security.bodies import (
    HEAD_BYTES,
    MOST_BYTES,
    Body,
    Form,
    TooLargeError,
    parse_form,
    token_in,
)
from pyworkers.web.security.cookies import START, VISITOR, cookie_name, set_cookie
from pyworkers.web.security.secret import Secret
from pyworkers.web.site import Site

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # With no-referrer, browsers send "Origin: null" with forms.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_READING = ("GET", "HEAD")
REDIS = "redis"
"""The first segment of the addresses of one Redis of several."""
# What a path may hold as it was sent.
_SENT = "/%:@!$&'()*+,;=~"
_VISITOR_CHARACTERS = 22
_NO_TOKEN = "The form is out of date. Nothing was done: load the page again."
_NO_TOKEN_OF_API = (
    "Nothing was done: the token is missing or out of date. Send the text csrf of GET /api as the header "
    "X-CSRF-Token, with the cookies of that answer, or send a header Authorization: Bearer."
)
_ENQUEUES = "Your role is enqueue: you may enqueue jobs, and read their results, below /api/jobs."
# A program has no use for a redirection and a cookie.
_FOR_PROGRAMS = ("api", "events")

Refuse = Callable[[Request, Refusal], Awaitable[Response]]
"""Makes the answer to a refused request."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What the forms of one answer are bound to."""

    secret: bytes
    visitor: str
    """A random text in a cookie, for those without a session."""
    is_new: bool
    identity: Identity | None = None

    @property
    def binding(self) -> str:
        """What only this browser holds."""
        if self.identity is None:
            return f"visitor\0{self.visitor}"
        ticket = self.identity.ticket
        return f"session\0{ticket.nonce}" if ticket else f"{self.identity.viewer.name}\0{self.visitor}"


class Entrance(Exception):
    """The request has the token in its address: the answer leads to the same address without it."""


class Guard:
    """The middleware. ``refuse`` makes the answers to what it refuses; ``secret`` signs."""

    def __init__(
        self, app: ASGIApp, site: Site, access: Access, hosts: Hosts, refuse: Refuse, secret: Secret
    ) -> None:
        self._app = app
        self._site = site
        self._access = access
        self._hosts = hosts
        self._refuse = refuse
        self._secret = secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A copy: the state of the application around the dashboard is its own.
        given = scope.get("state", {})
        scope["state"] = {
            **given,
            "site": self._site,
            "viewer": None,
            "visit": None,
            "form": Form(),
            "body": b"",
        }
        request = Request(scope, receive)
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._complete(request, MutableHeaders(scope=message))
            await send(message)

        try:
            await self._admit(request)
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            return
        except Entrance:
            await _entrance(request)(scope, receive, answer)
        except Refusal as refusal:
            response = await self._refuse(request, refusal)
            await response(scope, receive, answer)
        except Exception:
            # The server logs it; the answer of Starlette would have none of the headers.
            if not begun:
                response = await self._refuse(request, Refusal(500, ""))
                await response(scope, receive, answer)
            raise

    async def _admit(self, request: Request) -> None:
        """Let the request in, with its viewer, its body and its form."""
        self._check_host(request)
        place = place_of(request)
        if place == "static":
            return
        if request.method in _READING and not origins.may_read(request.headers):
            raise Refusal(403, "Another site has asked for this page. Open it by a link, or by its address.")
        visit = await self._visit(request)
        request.scope["state"]["visit"] = visit
        # The login is for viewers without an identity, and its forms must not depend on a session.
        if place != "login":
            identity = await self._access.identify(request, self._secret)
            visit = Visit(visit.secret, visit.visitor, visit.is_new, identity)
            request.scope["state"] |= {"visit": visit, "viewer": identity.viewer}
            if identity.viewer.role == "enqueue" and place != "api":
                raise Refusal(403, _ENQUEUES)
            if identity.by_address:
                if place not in _FOR_PROGRAMS:
                    raise Entrance
                request.scope["query_string"] = _without_token(request)
        if request.method not in _READING:
            await self._admit_change(request, visit, place)

    async def _admit_change(self, request: Request, visit: Visit, place: str) -> None:
        if not origins.is_own(request.headers):
            raise Refusal(403, "Another site has sent this form. Nothing was done.")
        most = MOST_BYTES if visit.identity else HEAD_BYTES
        try:
            body = Body(request, most)
            # The rest of a body is read only for those who may send it.
            if not await self._has_token(request, body, visit):
                raise Refusal(403, _NO_TOKEN_OF_API if place == "api" else _NO_TOKEN)
            if visit.identity and visit.identity.viewer.role == "read" and place != "logout":
                raise Refusal(403, "Your role is read: you may see everything, but change nothing.")
            sent = await body.whole()
            request.scope["state"] |= {"body": sent, "form": parse_form(request, sent)}
        except TooLargeError as error:
            raise Refusal(413, f"The request is larger than {most} bytes.") from error

    async def _has_token(self, request: Request, body: Body, visit: Visit) -> bool:
        if visit.identity and visit.identity.by_header:
            return True
        given = request.headers.get("x-csrf-token") or await token_in(request, body)
        return await self._is_token(given, visit)

    async def _is_token(self, given: str, visit: Visit) -> bool:
        if origins.is_token(given, visit.secret, visit.binding):
            return True
        return origins.is_token(given, await self._secret.latest(), visit.binding)

    def _check_host(self, request: Request) -> None:
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self._hosts.allow(hosts[0], request.scope):
            raise Refusal(400, "The dashboard does not answer to this host: add its name to hosts in [web].")

    async def _visit(self, request: Request) -> Visit:
        visitor = request.cookies.get(cookie_name(request, VISITOR), "")
        is_new = len(visitor) != _VISITOR_CHARACTERS
        if is_new:
            visitor = secrets.token_urlsafe(16)
        return Visit(await self._secret.current(), visitor, is_new)

    def _complete(self, request: Request, headers: MutableHeaders) -> None:
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        visit: Visit | None = request.scope["state"]["visit"]
        if request.scope["state"].get("has_form") and visit is not None and visit.is_new:
            response = Response()
            set_cookie(request, response, VISITOR, visit.visitor)
            headers.append("set-cookie", response.headers["set-cookie"])


def _entrance(request: Request) -> Response:
    """To the address without the token, which the browser has in a cookie from now on."""
    query = _without_token(request).decode()
    # As it was sent: decoded, the %2F in the name of a queue would be a slash.
    sent = request.scope.get("raw_path") or quote(request.url.path).encode()
    # Two slashes at the start would be the name of a host.
    path = f"/{quote(sent.lstrip(b'/'), safe=_SENT)}"
    answer = RedirectResponse(f"{path}{'?' if query else ''}{query}", 303)
    set_cookie(request, answer, START, request.query_params[TOKEN])
    return answer


def _without_token(request: Request) -> bytes:
    # Not of ``request.url``: an old Starlette takes a ``?`` of the decoded path for the start of the query.
    sent = request.scope["query_string"].decode("ascii", "surrogateescape")
    fields = parse_qsl(sent, keep_blank_values=True, errors="surrogateescape")
    return urlencode([field for field in fields if field[0] != TOKEN], errors="surrogateescape").encode()


def place_of(request: Request) -> str:
    """The first segment of the address below the dashboard; below ``/redis/NAME`` of an unknown name, too."""
    root = root_of(request.scope)
    path = str(request.scope["path"])
    inner = path.removeprefix(root) if path.startswith(f"{root}/") else path
    first, *rest = inner.strip("/").split("/")
    return rest[1] if first == REDIS and len(rest) > 1 else first


def visit_of(request: Request) -> Visit | None:
    """What the forms of the answer are bound to; None before it is known."""
    visit: Visit | None = request.scope["state"]["visit"]
    return visit


def viewer_of(request: Request) -> Viewer:
    """The viewer of a request that has passed ``Guard``."""
    viewer: Viewer = request.state.viewer
    return viewer


def form_of(request: Request) -> Form:
    """The fields of the form that was sent; empty for other requests."""
    form: Form = request.state.form
    return form


def body_of(request: Request) -> bytes:
    """What the request has sent."""
    body: bytes = request.state.body
    return body


def has_session(request: Request) -> bool:
    """True if the viewer has logged in, and may log out."""
    visit = visit_of(request)
    return visit is not None and visit.identity is not None and visit.identity.ticket is not None


def csrf_token(request: Request) -> str:
    """The token that a form of this viewer must hold; the answer sets the cookie that it needs."""
    visit = visit_of(request)
    if visit is None:
        return ""
    request.scope["state"]["has_form"] = True
    return origins.token(visit.secret, visit.binding)
