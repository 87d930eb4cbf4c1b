"""Rendering: the templates, what all of them know, and the addresses that they link.

Runs in the event loop of the dashboard. Everything is escaped unless it is Markup.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import DictLoader, Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from pyworkers.api.problems import span
from pyworkers.version import __version__
from pyworkers.web import appearance, flash, json, names, showing
from pyworkers.web.live.counts import COUNTED, PROBLEMS
from pyworkers.web.live.reader import Reader, banner_of, readers_of
from pyworkers.web.navigation import GROUPS, NAVIGATION, group_of, is_joined
from pyworkers.web.roots import root_of
from pyworkers.web.security import Viewer, csrf_token, has_session
from pyworkers.web.several import away_of, path_of, sites_of

_STATIC = Path(__file__).parent / "static"

# The first segments of the addresses that each Redis has.
_LISTS = {path for path, _ in NAVIGATION}


def _operates(viewer: Viewer | None, queue: str) -> bool:
    """True if buttons for a queue are shown."""
    return viewer is not None and viewer.operates(queue)


_LONGEST_PATH = 4000
_NO_BUTTONS: Mapping[str, object] = {
    "operate": False, "operates": partial(_operates, None), "operates_some": False
}  # fmt: skip
"""What templates know in a part that is the same for all viewers."""


def address(request: Request, *segments: str, **query: object) -> str:
    """The address of a page: its segments are encoded, a query parameter of None or ``""`` is left out."""
    root = root_of(request.scope)
    path = "/".join([root, *map(names.encode, segments)]) if segments else f"{root}/"
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given, errors='surrogateescape')}" if given else path


def own_address(request: Request) -> str:
    """The address of this request, with its query."""
    return f"{request.url.path}{'?' if request.url.query else ''}{request.url.query}"


def is_local(path: str) -> bool:
    """True for a plain path of this host: a form or an address may name the page to which it leads."""
    is_path = path.startswith("/") and not path.startswith(("//", "/\\"))
    is_plain = path.isascii() and path.isprintable() and " " not in path and "\\" not in path
    return is_path and is_plain and len(path) <= _LONGEST_PATH


async def render(request: Request, template: str, status: int = 200, **context: object) -> HTMLResponse:
    """The page of a template. ``title`` is required in ``context``; ``page`` is the one in the navigation."""
    viewer: Viewer | None = request.state.viewer
    root = root_of(request.scope)
    path = path_of(request)
    page = path.partition("/")[0]
    in_json, in_csv = json.addresses_of(request, path or _overview(request))
    counts = Reader.counts_of_pages(readers_of(request).values()) if viewer else {}
    known: Mapping[str, object] = {
        "request": request,
        "viewer": viewer,
        "operate": viewer is not None and viewer.operates(),
        "operates": partial(_operates, viewer),
        "operates_some": viewer is not None and viewer.role == "operate",
        "session": has_session(request),
        "csrf": partial(_csrf, request),
        "flash": flash.take(request),
        "refused": "",
        "sought": "",
        "theme": appearance.theme_of(request),
        "zone": appearance.zone_of(request),
        "counted": (*COUNTED, PROBLEMS),
        "counts_of_pages": counts,
        "count_of_title": Markup(counts.get(page) or counts.get(PROBLEMS, "")).striptags(),
        "groups": GROUPS,
        "group": group_of(page),
        "choices_of_redis": sites_of(request).choices(
            request, path if is_joined(path) else page if page in _LISTS else ""
        ),
        "away_servers": banner_of({name: str(error) for name, error in away_of(request).items()}),
        "page": page,
        "json": f"{root}{in_json}" if in_json and status == 200 else "",
        "csv": f"{root}{in_csv}" if in_csv and status == 200 else "",
        "now": time.time(),
        "here": own_address(request),
        "version": __version__,
    }
    answer = HTMLResponse(_environment().get_template(template).render({**known, **context}), status)
    flash.clear(request, answer)
    return answer


def _overview(request: Request) -> str:
    """The address of the JSON of the overview."""
    return "redis" if sites_of(request).shows_all(request) else "stats"


def fragment(request: Request, template: str, **context: object) -> str:
    """A part of a page, the same for all viewers: without buttons."""
    html: str = _environment().get_template(template).render({"request": request, **_NO_BUTTONS, **context})
    return html


def macro(request: Request, template: str, name: str) -> Callable[..., Markup]:
    """A macro of a template, for a part of a page that is the same for all viewers: without buttons."""
    module = _environment().get_template(template).make_module({"request": request, **_NO_BUTTONS})
    found: Callable[..., Markup] = getattr(module, name)
    return found


def keep() -> None:
    """Read all templates and static files now: later, the files may be from another release."""
    _environment()
    _statics()


@cache
def _statics() -> dict[str, tuple[str, bytes]]:
    """The static files by name: each with its name with a digest, for ever in browsers, and its bytes."""
    found = {}
    for path in _STATIC.iterdir():
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:12]
        found[path.name] = f"{path.stem}.{digest}{path.suffix}", content
    return found


def static_file(name: str) -> bytes | None:
    """The static file with this name, which has its digest; None for any other name."""
    return dict(_statics().values()).get(name)


@cache
def _environment() -> Environment:
    package = PackageLoader("pyworkers.web")
    texts = {
        name: package.get_source(Environment(autoescape=True), name)[0] for name in package.list_templates()
    }
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=DictLoader(texts),
    )
    environment.globals.update(url=_url, static=_static, linkable=linkable)
    environment.filters.update(
        shown=showing.shown,
        lines=showing.lines,
        expandable=showing.expandable,
        visible=showing.visible,
        moment=showing.moment,
        exact=showing.exact,
        both=showing.both,
        duration=showing.duration,
        span=span,
        number=showing.number,
        counted=showing.counted,
        milliseconds=showing.milliseconds,
        encoded=names.encode,
        part=names.part,
    )
    return environment


@pass_context
def _url(context: Context, *segments: str, **query: object) -> str:
    """``url("queues", name, page=2)`` in a template."""
    return address(context["request"], *segments, **query)


@pass_context
def _static(context: Context, name: str) -> str:
    """The address of a static file."""
    return address(context["request"], "static", _statics()[name][0])


def linkable(name: str) -> bool:
    """False for a name that is too long for an address, or that no key can have."""
    return names.is_key(name) and len(names.encode(name)) <= names.MOST_CHARACTERS


def _csrf(request: Request) -> Markup:
    """The hidden field that every form with ``method="post"`` holds."""
    return Markup('<input type="hidden" name="csrf" value="{}">').format(csrf_token(request))
