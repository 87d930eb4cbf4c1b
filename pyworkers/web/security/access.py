"""Access: who a viewer is, and with which role, by one of three rules.

By the users of a file or a provider of OpenID Connect, by a function of the application around the dashboard,
or, without these, only from the same machine and with the token of this start. Runs in the event loop of the
dashboard.
"""

from __future__ import annotations

import hmac
import inspect
import secrets
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from pyworkers import logs
from pyworkers.config.fields import OidcConfig
from pyworkers.config.rights import Rights, Role
from pyworkers.http.hosts import is_loopback
from pyworkers.web.roots import root_of
from pyworkers.web.security.cookies import SESSION, START, cookie_name
from pyworkers.web.security.ended import EndedSessions
from pyworkers.web.security.logins import Logins, TooManyAttempts
from pyworkers.web.security.oidc import Provider
from pyworkers.web.security.secret import Secret
from pyworkers.web.security.sessions import Ticket, is_valid, open_session
from pyworkers.web.security.users import User, UserFile
from pyworkers.web.site import Site

Authorize = Callable[[Request], str | Awaitable[str | None] | None]
"""The function of an application: the role of a request, ``read``, ``enqueue``, ``operate``, or one for some
queues as ``operate@mail*``; None for no access."""
UNIX_SOCKET = "unix socket"
"""The address of a client of the dashboard's own Unix socket."""
TOKEN = "token"
"""The query parameter with the token of this start."""
# A proxy writes at least one of them, unless it has no settings at all; without users, the dashboard cannot
# know for whom it asks.
_FORWARDING = frozenset({
    "forwarded", "via", "x-real-ip", "x-real-host", "x-client-ip", "x-cluster-client-ip", "x-remote-ip",
    "x-remote-addr", "x-originating-ip", "x-original-host", "x-original-url", "x-original-forwarded-for",
    "x-host", "x-rewrite-url", "x-proxyuser-ip", "x-scheme", "x-envoy-external-address", "true-client-ip",
    "x-envoy-original-path", "client-ip", "front-end-https", "cf-connecting-ip", "cf-ray", "cdn-loop",
    "fastly-client-ip", "fly-client-ip", "x-amzn-trace-id", "x-varnish",
})  # fmt: skip
_FORWARDED = "x-forwarded"
_ENDED = "Your session has ended."
_NO_TOKEN = (
    "The token of this start is missing. Open the address that the dashboard has printed or logged at its "
    "start: it ends with ?token=…; a program sends the token as the header Authorization: Bearer."
)
_FOR_PROGRAMS = "The role enqueue is for programs, which send the header Authorization: Bearer to /api/jobs."
_ROLES = "read, enqueue, operate or None"
_ASKING = {"WWW-Authenticate": 'Bearer realm="pyworkers"'}

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person at the dashboard; ``name`` is in the audit."""

    name: str
    rights: Rights

    @property
    def role(self) -> Role:
        """The role, without its queues."""
        return self.rights.role

    def operates(self, queue: str | None = None) -> bool:
        """True if the person may act on a queue; without one, on everything."""
        covers = not self.rights.queues if queue is None else self.rights.cover(queue)
        return self.role == "operate" and covers


@dataclass(frozen=True, slots=True)
class Identity:
    """A viewer, and how the request proves who it is."""

    viewer: Viewer
    ticket: Ticket | None = None
    """The session."""
    by_header: bool = False
    """With a header ``Authorization``, which another site's form cannot send."""
    by_address: bool = False
    """With the token in the address, which the browser is to keep in a cookie instead."""


class Refusal(Exception):
    """The request is not executed; ``login``: the answer asks for name and password."""

    def __init__(
        self, status: int, text: str, *, login: bool = False, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.login = login
        self.headers = headers or {}


class Access(Protocol):
    """A rule that finds the viewer of a request."""

    async def identify(self, request: Request, secret: Secret) -> Identity:
        """The viewer. Raises Refusal."""


class Users:
    """People by a session, and programs by a header ``Authorization``.

    ``logins``: the users of a file; ``provider``: knows other people, who have no password here.
    """

    def __init__(self, logins: Logins | None, ended: EndedSessions, provider: Provider | None = None) -> None:
        self._logins = logins
        self._ended = ended
        self.provider = provider

    @classmethod
    def of(cls, auth: str | Path | None, oidc: OidcConfig, site: Site) -> Users:
        """The users of a file, of a provider, or of both. Raises ConfigError and MissingExtraError."""
        logins = None if auth is None else Logins(UserFile(Path(auth)))
        return cls(logins, EndedSessions(site), Provider(oidc) if oidc.issuer else None)

    @property
    def has_file(self) -> bool:
        """True if people may log in with a name and a password."""
        return self._logins is not None

    async def identify(self, request: Request, secret: Secret) -> Identity:
        """By the header if there is one, else by the session."""
        given = request.headers.get("authorization")
        if given is not None:
            viewer = await self._by_header(given, request)
            return Identity(viewer, by_header=_is_by_header(request))
        ticket = Ticket.parse(request.cookies.get(cookie_name(request, SESSION), ""))
        if ticket is None:
            raise Refusal(401, "", login=True, headers=_ASKING)
        holder = self._holder(ticket)
        if holder is None or not await self._is_open(ticket, holder[0], secret):
            raise Refusal(401, _ENDED, login=True, headers=_ASKING)
        return Identity(Viewer(ticket.name, holder[1]), ticket)

    async def login(self, request: Request, name: str, password: str, secret: bytes) -> str | None:
        """The cookie of a new session; None if the name or the password is wrong. Raises Refusal."""
        if self._logins is None:
            return None
        try:
            user = await self._logins.check(name, password, address_of(request))
        except TooManyAttempts as error:
            raise _too_many(error, login=True) from error
        if user is not None and user.rights.role == "enqueue":
            raise Refusal(403, _FOR_PROGRAMS, login=True)
        return None if user is None else open_session(user.name, user, secret, time.time())

    async def logout(self, ticket: Ticket) -> None:
        """End a session."""
        await self._ended.add(ticket)

    def _holder(self, ticket: Ticket) -> tuple[object, Rights] | None:
        """What the signature of a session depends on, and its rights; None if there is no such user."""
        if ticket.rights:
            return None if self.provider is None else self.provider.holder(ticket.rights)
        user = None if self._logins is None else self._logins.user(ticket.name)
        return None if user is None else (user, user.rights)

    async def _is_open(self, ticket: Ticket, key: object, secret: Secret) -> bool:
        def is_ours(value: bytes) -> bool:
            return is_valid(ticket, key, value, time.time())

        # First what costs nothing: a stranger's cookie must not make the dashboard ask Redis.
        if not (is_ours(await secret.current()) or is_ours(await secret.latest())):
            return False
        return not await self._ended.has(ticket)

    async def _by_header(self, given: str, request: Request) -> Viewer:
        scheme, _, value = given.partition(" ")
        try:
            user = await self._by_scheme(scheme.lower(), value.strip(), address_of(request))
        except TooManyAttempts as error:
            raise _too_many(error) from error
        if user is None:
            raise Refusal(401, "The name, the password or the token is wrong.", headers=_ASKING)
        return Viewer(user.name, user.rights)

    async def _by_scheme(self, scheme: str, value: str, address: str) -> User | None:
        if self._logins is None:
            return None
        if scheme == "bearer":
            return await self._logins.check_token(_as_text(value), address)
        if scheme != "basic":
            return None
        try:
            name, colon, password = b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            return None
        return await self._logins.check(name, password, address) if colon else None


class Function:
    """The role that a function of the application returns."""

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    async def identify(self, request: Request, secret: Secret) -> Identity:
        """As the function says; an error of it, or a word that is no role, is no access."""
        try:
            word = await _called(self._authorize, request)
        except HTTPException as error:
            raise Refusal(error.status_code, error.detail, headers=dict(error.headers or {})) from error
        except Exception as error:
            log.exception("web.authorize_failed")
            raise Refusal(403, "The application could not say whether you may look.") from error
        rights = _rights_of(word)
        if rights is None:
            if word is not None:
                log.error("web.authorize_invalid", returned=repr(word), roles=_ROLES)
            raise Refusal(403, "You have no access to this dashboard.")
        return Identity(Viewer(_name_of(request), rights), by_header=_is_by_header(request))


class Local:
    """Every viewer on the same machine with the token of this start operates.

    A proxy on this machine that says nothing of itself looks like a viewer here: only the token tells them
    apart. ``token``: an empty text for a dashboard that needs none. ``by_socket``: also by the Unix socket.
    """

    def __init__(self, token: str, *, by_socket: bool = False, is_announced: bool = True) -> None:
        self.token = token
        self._by_socket = by_socket
        self._is_announced = is_announced

    async def identify(self, request: Request, secret: Secret) -> Identity:
        """The viewer by the address and the token; a request through a proxy is refused."""
        address = address_of(request)
        is_own = is_loopback(address) or (self._by_socket and address == UNIX_SOCKET)
        if not is_own or is_forwarded(request):
            raise Refusal(
                403,
                "Without --auth, or authorize= in a program, only this machine itself may look at the "
                "dashboard, and not through a proxy.",
            )
        viewer = Viewer(address, Rights("operate"))
        if not self.token:
            return Identity(viewer)
        if self._is_token(_bearer(request)):
            return Identity(viewer, by_header=True)
        if request.method in ("GET", "HEAD") and self._is_token(request.query_params.get(TOKEN, "")):
            return Identity(viewer, by_address=True)
        if self._is_token(request.cookies.get(cookie_name(request, START), "")):
            return Identity(viewer)
        self._announce(request)
        raise Refusal(401, _NO_TOKEN, headers=_ASKING)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self.token.encode())

    def _announce(self, request: Request) -> None:
        """Log where a dashboard in the server of another program is opened: at its start, it did not know."""
        if not self._is_announced:
            self._is_announced = True
            log.info("web.token", address=f"{root_of(request.scope)}/?{TOKEN}={self.token}")


def new_token() -> str:
    """The token of a start."""
    return secrets.token_urlsafe(24)


def is_forwarded(request: Request) -> bool:
    """True if a proxy has passed the request on, and says so."""
    return any(name in _FORWARDING or name.startswith(_FORWARDED) for name in request.headers)


async def _called(authorize: Authorize, request: Request) -> object:
    # One that is not async may block, for a database.
    is_async = inspect.iscoroutinefunction(authorize)
    result = authorize(request) if is_async else await run_in_threadpool(authorize, request)
    return await result if inspect.isawaitable(result) else result


def _rights_of(word: object) -> Rights | None:
    """The rights that a function names; None for another value."""
    try:
        return Rights.parse(word) if isinstance(word, str) else None
    except ValueError:
        return None


def _name_of(request: Request) -> str:
    """The name for the audit: of the user that the application around has found, else the address."""
    for user in (getattr(request.state, "user", None), request.scope.get("user")):
        name = _name_in(user)
        if name:
            return name
    return address_of(request)


def _name_in(user: Any) -> str:
    if isinstance(user, str):
        return user
    names = (getattr(user, attribute, None) for attribute in ("display_name", "username", "name", "email"))
    return next((name for name in names if isinstance(name, str) and name), "")


def address_of(request: Request) -> str:
    """The address of the client."""
    return request.client.host if request.client else ""


def _is_by_header(request: Request) -> bool:
    """True if no other site can have sent the request: a change then needs no token of a form.

    Browsers send Basic by themselves, with the form of another site as well: its origin is needed, which
    ``Guard`` compares. Without a header ``Authorization``, a function may have looked at a cookie alone.
    """
    return bool(_bearer(request)) or ("authorization" in request.headers and "origin" in request.headers)


def is_by_bearer(request: Request) -> bool:
    """True for a request with a bearer token, which no browser sends by itself."""
    return bool(_bearer(request))


def _bearer(request: Request) -> str:
    """The token in the header ``Authorization``; empty without one."""
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _as_text(value: str) -> str:
    """A header as UTF-8; starlette reads headers as Latin-1."""
    try:
        return value.encode("latin-1").decode()
    except ValueError:
        return value


def _too_many(error: TooManyAttempts, *, login: bool = False) -> Refusal:
    return Refusal(429, str(error), login=login, headers={"Retry-After": str(error.wait_s)})
