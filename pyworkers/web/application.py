"""The ASGI application of the dashboard: its routes, its static files, its errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from mimetypes import guess_type
from operator import attrgetter
from pathlib import Path
from pkgutil import iter_modules

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pyworkers.api.target import Where, admin_of, stores_of
from pyworkers.api.webshared import keep_scripts
from pyworkers.config.fields import OidcConfig
from pyworkers.config.loading import load
from pyworkers.config.sources import Document
from pyworkers.config.stores import DEFAULT, check_redis_name
from pyworkers.config.thresholds import Threshold
from pyworkers.errors import ConfigError, PyworkersError, RedisUnavailableError, StoreError
from pyworkers.http.hosts import Hosts
from pyworkers.web import json, pages, rendering, several
from pyworkers.web.acting import is_sent, undone
from pyworkers.web.json import enqueueing
from pyworkers.web.json.merging import of_all
from pyworkers.web.json.resources import Resource
from pyworkers.web.live import stream
from pyworkers.web.live.reader import Reader, reader_of
from pyworkers.web.pages import login
from pyworkers.web.pages.overview import tiles_of
from pyworkers.web.rendering import own_address, render, static_file
from pyworkers.web.security import Authorize, Guard
from pyworkers.web.security.access import Access, Function, Local, Refusal, Users, new_token
from pyworkers.web.security.guard import place_of
from pyworkers.web.security.secret import Secret
from pyworkers.web.several import ByForm, ByRedis, Sites, sites_of
from pyworkers.web.site import Site, SiteSettings, site_of
from pyworkers.web.waiting import ProgramWaits

_PAGES = [import_module(f"{pages.__name__}.{found.name}") for found in iter_modules(pages.__path__)]
_FOUND: Iterable[Resource] = (
    one for module in (*_PAGES, enqueueing) for one in getattr(module, "RESOURCES", ())
)
RESOURCES = tuple(sorted(_FOUND, key=attrgetter("path")))
"""By address."""
_SHORTEST_TOKEN = 20
_TITLES = {403: "Not allowed", 413: "Too large", 429: "Too many attempts"}
_UNNAMED = "Log in, or send a header Authorization."


def app(
    url: Where = None,
    *,
    namespace: str | None = None,
    auth: str | Path | None = None,
    authorize: Authorize | None = None,
    oidc: Mapping[str, object] | None = None,
    hosts: Iterable[str] | None = None,
    mask: Iterable[str] = SiteSettings().mask,
    thresholds: Iterable[str] = (),
    token: str | None = None,
    others: Mapping[str, Where] | None = None,
) -> Starlette:
    """The dashboard, to serve or to mount. It connects at the first request.

    ``url`` and ``namespace``: as for ``Client``. ``others``: the other Redis servers of the program by name,
    whose pages are below ``/redis/NAME``; without ``url`` and ``namespace``, by default the Redis
    servers of the configuration. ``mask``: names whose values are hidden in the arguments of
    jobs. ``thresholds``: numbers above which counts are shown as high, e.g. ``"mail* oldest > 300"``. Who may
    look is decided by one of

    - ``auth``: a file with users, lines that ``pyworkers web-user`` prints; ``oidc``: a provider of OpenID
      Connect, with the keys of ``[web.oidc]``; or both;
    - ``authorize``: a function, also ``async def``, that gets the request and returns ``"read"``,
      ``"enqueue"``, ``"operate"``, one for some queues as ``"operate@mail*"``, or None for no access. The
      audit names ``request.state.user`` or ``scope["user"]``, else the address of the client;
    - neither: viewers on the same machine with the token of this start may do everything, all others nothing.
      The log has the address with the token when the first viewer comes without it. ``token`` is one of your
      own, for several processes, of at least 20 characters; an empty text for none, if no proxy leads to this
      machine.

    ``hosts``: names under which browsers reach it, besides loopback and the server's address; without it,
    a dashboard with ``authorize`` answers to every name that the application around it does. Raises
    ConfigError.
    """
    _check(authorize, token, has_people=auth is not None or bool(oidc))
    stores = stores_of(url, namespace) if others is None else None
    settings = SiteSettings(tuple(mask), _thresholds(thresholds), stores=stores)
    site = Site(admin_of(url, namespace), settings)
    named = others or (stores.others if stores else {})
    more = {name: Site(admin_of(where), replace(settings, name=name)) for name, where in named.items()}
    _check_names(more)
    access: Access = Local(new_token() if token is None else token, is_announced=bool(token))
    if authorize is not None:
        access = Function(authorize)
    elif auth is not None or oidc:
        access = Users.of(auth, _provider(oidc or {}), site)
    names = None if authorize is not None and hosts is None else (hosts or ())
    return assemble({DEFAULT: site, **more}, access, Hosts(names))


def _provider(keys: Mapping[str, object]) -> OidcConfig:
    """The settings with these keys, checked as the file's. Raises ConfigError."""
    document = Document(None, "", {"web": {"oidc": dict(keys)}}, "app(oidc=…)")
    return load(lambda: document, env={}).web.oidc


def _check(authorize: Authorize | None, token: str | None, *, has_people: bool) -> None:
    if has_people and authorize is not None:
        raise ConfigError("auth or oidc, and authorize exclude each other: pass one of them")
    if token and len(token) < _SHORTEST_TOKEN:
        raise ConfigError(
            f"token has {len(token)} characters, which can be guessed: pass at least {_SHORTEST_TOKEN}",
            hint="python -c 'import secrets; print(secrets.token_urlsafe())' prints one",
        )


def _thresholds(texts: Iterable[str]) -> tuple[Threshold, ...]:
    try:
        return tuple(map(Threshold.parse, texts))
    except ValueError as error:
        raise ConfigError(f"thresholds: {error}") from error


def _check_names(others: Iterable[str]) -> None:
    for name in others:
        try:
            check_redis_name(name)
        except ValueError as error:
            raise ConfigError(f"others: {error}") from error


def assemble(sites: Mapping[str, Site], access: Access, hosts: Hosts) -> Starlette:
    """The application of these parts. ``sites``: one for each Redis, by name, the default one first."""
    keep_scripts()
    rendering.keep()
    secret = Secret(next(iter(sites.values())))
    first = next(iter(sites))
    if len(sites) == 1:
        return _of_one(Sites(sites, first), access, hosts, secret)
    parts = {name: _of_one(Sites(sites, name), access, hosts, secret) for name in sites}
    return _of_one(Sites(sites, first, parts), access, hosts, secret)


def _of_one(sites: Sites, access: Access, hosts: Hosts, secret: Secret) -> Starlette:
    """The application of one Redis; with parts, of all, whose other pages are the pages of one."""
    site, parts = sites.by_name[sites.own], sites.parts
    if parts:
        waits, reader = parts[sites.own].state.waits, parts[sites.own].state.reader
    else:
        waits = ProgramWaits(site)
        feeds = {name: feed for module in _PAGES for name, feed in getattr(module, "FEEDS", {}).items()}
        reader = Reader(site, feeds, next(iter(sites.by_name.values())))

    @asynccontextmanager
    async def lifespan(_application: Starlette) -> AsyncIterator[None]:
        yield
        for part in parts.values() or (application,):
            await part.state.reader.close()
            await part.state.waits.close()
        for each in sites.by_name.values():
            await each.close()

    routes = [route for module in (*_PAGES, stream) for route in getattr(module, "ROUTES", ())]
    users = access if isinstance(access, Users) else None
    entrance = [] if users is None else login.routes(users)
    guard = Middleware(Guard, site=site, access=access, hosts=hosts, refuse=_answer_refusal, secret=secret)
    application = Starlette(
        routes=[*routes, *json.ROUTES, *entrance, Route("/static/{name}", _static)],
        middleware=_by_redis(sites, guard) if parts else [guard],
        exception_handlers={HTTPException: _refused, PyworkersError: _failed},
        lifespan=lifespan,
    )
    application.state.reader, application.state.waits, application.state.sites = reader, waits, sites
    application.state.users = users
    resources = tuple(map(of_all, RESOURCES)) if parts else RESOURCES
    application.state.resources = (*resources, *several.RESOURCES) if sites.several else resources
    return application


def _by_redis(sites: Sites, guard: Middleware) -> list[Middleware]:
    """What is before the pages of all Redis servers."""
    return [Middleware(ByRedis, parts=sites.parts), guard, Middleware(ByForm, sites=sites.by_name)]


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    content = static_file(name)
    if content is None:
        raise HTTPException(404)
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(content, headers=headers, media_type=guess_type(name)[0])


async def _answer_refusal(request: Request, refusal: Refusal) -> Response:
    """A page; JSON below /api, plain text for the event stream and for a host that is not allowed."""
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


async def _refused(request: Request, error: Exception) -> Response:
    """The page of an error that a page raised as HTTPException; JSON if the Redis is unknown."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if place_of(request) == "api":
        # The JSON of each known Redis answers by itself.
        known = ", ".join(sites_of(request).by_name)
        return json.refusal(404, f"There is no Redis with this name: known are {known}.")
    text = "There is no such page." if status == 404 else getattr(error, "detail", "")
    return await render(request, "error.html", status, title=f"Error {status}", text=text)


async def _failed(request: Request, error: Exception) -> Response:
    """The page while Redis is away, or refuses a command; or of a value that ``api`` refuses."""
    if not isinstance(error, RedisUnavailableError | StoreError):
        return await render(request, "error.html", 400, title="Error 400", text=str(error))
    if request.method not in ("GET", "HEAD"):
        title, text = undone(request, error)
        back = own_address(request)
        return await render(request, "undone.html", 503, title=title, text=text, back=back)
    reader, since = reader_of(request), site_of(request).away_since
    if since is None:
        # Another one of several may be away.
        title = "Redis refuses this" if isinstance(error, StoreError) else "Redis does not answer"
        return await render(request, "error.html", 503, title=title, text=str(error))
    last = reader.last
    known = {} if last is None else tiles_of(request, {sites_of(request).own: (reader, last)})
    return await render(
        request, "away.html", 503, title="Redis does not answer", away=since, text=str(error), stats=last,
        **known,
    )  # fmt: skip
