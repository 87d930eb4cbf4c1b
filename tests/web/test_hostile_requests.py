"""Requests of hostile users: odd addresses, fields, methods, headers and bodies. No answer is 500."""

from __future__ import annotations

import itertools
import re
import resource
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from urllib.parse import quote, quote_from_bytes, urlencode, urlsplit

import pytest
import redis
from starlette.routing import BaseRoute, Mount, Route

from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from tests.web import hostile
from tests.web.attacker import Attacker, Reply
from tests.web.document import Document
from tests.web.visitor import Visitor

SEGMENTS = (
    "",
    "~",
    "~~",
    "~zz",
    "~FF~FE",
    "~uD800",
    "~00",
    "~0A",
    "~2E~2E",
    "%00",
    "%ff%fe",
    "%2F",
    "%2e%2e",
    "%ED%A0%80",
    "-1",
    "0",
    "1e999",
    "9" * 400,
    "a" * 5_000,
    "*",
    "[(*",
    "null",
    "queue%3Axhostile",
    "default",
    quote(hostile.TEXTS[0], safe=""),
)
"""What replaces a name in an address, as it is sent."""
VALUES = (
    "",
    "0",
    "-1",
    "1e999",
    "nan",
    "9" * 400,
    "0x10",
    "1_0",
    "%D9%A1",
    "%00",
    "%ff",
    "%ED%A0%80",
    "%0d%0aSet-Cookie%3A%20x=1",
    "(((((((((a+)+)+)+)+)+)+)+)+$",
    "[(*",
    "{}",
    "[]",
    "null",
    "true",
    "a" * 20_000,
    quote(hostile.TEXTS[0], safe=""),
    quote_from_bytes(hostile.TEXTS[6].encode()),
)
"""What replaces a value in a query, as it is sent."""
FIELDS = ("", "-1", "1e999", "nan", "9" * 400, "\udcff\x00", "[", hostile.TEXTS[0])
"""What is sent in each field of a form."""
BODIES = (
    b"",
    b"action",
    b"action=&action=",
    b"action=nothing",
    b"=&=&&",
    b"%",
    b"action=%zz%00%ff",
    b"\xff\xfe=\xff",
    b"job=1&" * 3_000,
    b"a" * 500_000,
)
HEADERS: tuple[tuple[str, str | bytes], ...] = (
    ("Range", "bytes=0-10"),
    ("Range", "bytes=5-1"),
    ("Range", "bytes=-99999999999999999999"),
    ("Range", "bytes=" + "0-1," * 1_000),
    ("Range", "lines=x"),
    ("Cookie", "pyworkers_flash=x"),
    ("Cookie", "pyworkers_flash=" + "A" * 20_000),
    ("Cookie", "pyworkers_flash=/w=="),
    ("Cookie", "pyworkers_flash=Lg=="),
    ("Cookie", b"\xff\xfe=\xff; =; ;;; a"),
    ("Cookie", "pyworkers_session=x.y.z; pyworkers_visitor=" + "~" * 22),
    ("Authorization", "Basic"),
    ("Authorization", "Basic !!!"),
    ("Authorization", "Basic /////w=="),
    ("Authorization", "Bearer "),
    ("Authorization", b"Bearer \xff\xfe"),
    ("If-None-Match", "*"),
    ("If-Modified-Since", "yesterday"),
    ("If-Range", '"x"'),
    ("Accept", "image/png"),
    ("Accept-Language", "x" * 10_000),
    ("Last-Event-ID", "9" * 400),
    ("X-Forwarded-For", 'evil, "1'),
    ("X-Forwarded-Prefix", "//evil.example"),
    ("X-CSRF-Token", b"\xff"),
    ("Origin", "null"),
    ("Content-Length", "0"),
    ("Content-Type", "multipart/form-data"),
    ("Host", "127.0.0.1:99999999999"),
    ("Host", "[::"),
    ("Host", b"\xff"),
    ("Host", ""),
)


def routes(found: Sequence[BaseRoute] | None = None, root: str = "") -> Iterator[str]:
    """The path of every page, without ``/api``, whose addresses hold their own names."""
    for route in app("redis://127.0.0.1").routes if found is None else found:
        if isinstance(route, Route):
            yield root + route.path
        elif isinstance(route, Mount):
            yield from routes(route.routes, root + route.path)


PAGES = sorted({path for path in routes() if not path.startswith(("/events", "/api", "/static"))})


def built(path: str, segments: Sequence[str]) -> str:
    """The path with these segments in the places of its names."""
    places = itertools.cycle(segments)
    return re.sub(r"\{[^}]*\}", lambda _: next(places), path)


def address(visitor: Visitor, path: str) -> str:
    """The first page with this path that the shop links; for want of one, a page of an unknown name."""
    parent = "/dead" if path.startswith("/jobs/") else path.partition("/{")[0]
    pattern = re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path))
    linked = (urlsplit(link).path for link in visitor.ask(parent).page.links if "{" in path)
    return next(filter(pattern.fullmatch, linked), built(path, ["default"]))


def parameters(visitor: Visitor, path: str) -> set[str]:
    """The names of the parameters that links and forms of a page have."""
    answer = visitor.ask(path)
    links = [urlsplit(link).query for link in answer.page.links]
    named = {part.partition("=")[0] for query in links for part in query.split("&")}
    fields = {name for form in answer.page.forms for name in (*form.hidden, *form.buttons)}
    return {name for name in {*named, *fields, "page"} if name}


def refused(replies: dict[str, Reply]) -> list[str]:
    """What went wrong, for the message of a failure."""
    return [
        f"{reply.status} {about[:160]}: {reply.body[:300]!r}"
        for about, reply in replies.items()
        if reply.broken
    ]


@pytest.fixture
def attacker(dashboard: Visitor) -> Attacker:
    return Attacker(dashboard.root)


@pytest.fixture
def filled(db: redis.Redis, namespace: str) -> Keys:
    """Hostile data, so that every page has rows."""
    keys = Keys(namespace)
    hostile.fill(db, keys)
    return keys


def test_addresses_of_no_page(attacker: Attacker) -> None:
    odd: tuple[str | bytes, ...] = (
        "//",
        "///queues",
        "/queues/",
        "/queues//",
        "/./queues",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/../application.py",
        "/static/%2e%2e%2fapplication.py",
        "/static/",
        "/static/%00",
        "/static/style.css%00",
        "/static/" + "a" * 5_000,
        "/%00",
        "/%",
        "/%zz",
        "/%ff%fe",
        b"/\xff\xfe",
        b"/queues?\xff=\xfe",
        "/" + "a/" * 5_000,
        "/" + "a" * 60_000,
        "/queues?" + "a=1&" * 10_000,
        "/queues?%00=%00&=&&&==",
        "/queues#fragment",
        "/queues;a=b",
        "*",
        "http://evil.example/queues",
        "queues",
        "/api//",
        "/api/queues/%2F%2F",
        "/api/" + "%2F" * 3_000,
        "/api/queues/" + "%ff" * 3_000,
        "/api/%ED%A0%80",
    )
    replies = {repr(target)[:200]: attacker.ask(target) for target in odd}
    assert refused(replies) == []
    assert {reply.status for reply in replies.values()} <= {0, 200, 303, 307, 400, 404, 414, 431}


def test_names_in_addresses(attacker: Attacker, filled: Keys) -> None:
    targets = [
        built(path, names)
        for segment, path in itertools.product(SEGMENTS, PAGES)
        for names in ((segment,), ("default", segment), (segment, "x"))
    ]
    replies = {target: attacker.ask(target) for target in dict.fromkeys(targets)}
    assert refused(replies) == []


@pytest.mark.independent
@pytest.mark.parametrize("path", PAGES)
def test_parameters(read_shop: Visitor, path: str) -> None:
    attacker = Attacker(read_shop.root)
    target = address(read_shop, path)
    known = sorted(parameters(read_shop, target))
    asked = ["&".join(f"{name}={value}" for name in known) for value in VALUES if len(value) < 1_000]
    asked += [
        f"{name}={value}" for name in known for value in ("", "-1", "1e999", "9" * 400, "%ff", "a" * 20_000)
    ]
    asked += [f"{name}&{name}=1&{name}=2&{name}[]=3&;{name}=4" for name in known]
    replies = {query[:200]: attacker.ask(f"{target}?{query}") for query in asked}
    assert refused(replies) == []


@pytest.mark.independent
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.usefixtures("small_shop")
def test_forms(dashboard: Visitor, attacker: Attacker, path: str) -> None:
    """Every action with fields that are missing, repeated, unknown, or of another type, and a right token."""
    target = address(dashboard, path)
    sender = Sender(dashboard, attacker, target)
    replies = {repr(body[:100]): sender.post(body) for body in BODIES}
    for action in sender.actions:
        for value in FIELDS:
            fields = dict.fromkeys([*sender.fields, "unknown"], value)
            body = urlencode({**fields, "action": action}, errors="surrogateescape").encode()
            replies[f"{action} {body[:100]!r}"] = sender.post(body)
        for name in sender.fields:
            pairs = [("action", action), (name, "1"), (name, "2")]
            replies[f"{action} {name} twice"] = sender.post(urlencode(pairs).encode())
    assert refused(replies) == []


def test_methods(attacker: Attacker, filled: Keys) -> None:
    targets = [*(built(path, ["default"]) for path in PAGES), "/api", "/api/queues", "/static/x", "/nowhere"]
    methods = ("HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO", "get")
    replies = {
        f"{method} {target}": attacker.ask(target, method)
        for method, target in itertools.product(methods, targets)
    }
    assert refused(replies) == []
    statuses = {about: reply.status for about, reply in replies.items() if not about.startswith("HEAD")}
    assert {about: status for about, status in statuses.items() if status not in (400, 403, 404, 405)} == {}


def test_headers(dashboard: Visitor, attacker: Attacker, filled: Keys) -> None:
    html = dashboard.get("queues").html
    [style] = set(re.findall(r'href="(/static/[^"]+[.]css)"', html))
    replies = {}
    for target, header in itertools.product(("/queues", style), HEADERS):
        # Without a port, which would stand in the names of the cookies.
        given = {"Host": "localhost", **dict([header])}
        replies[f"{target} {header!r}"[:200]] = attacker.ask(target, headers=given)
    assert refused(replies) == []


def test_requests_that_break_off(dashboard: Visitor, attacker: Attacker) -> None:
    host = f"Host: {urlsplit(dashboard.root).netloc}\r\n".encode()
    form = b"Content-Type: application/x-www-form-urlencoded\r\n"
    chunked = host + form + b"Transfer-Encoding: chunked\r\n\r\n"
    requests = (
        b"",
        b"\r\n\r\n",
        b"GET /queues\r\n\r\n",
        b"GET /queues HTTP/9.9\r\n" + host + b"\r\n",
        b"GET /queues HTTP/1.0\r\n\r\n",
        b"GET /queues HTTP/1.1\r\n\r\n",
        b"GET /queues HTTP/1.1\r\n" + host * 2 + b"\r\n",
        b"GET /queues HTTP/1.1\r\n" + host + b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"POST /queues HTTP/1.1\r\n" + host + form + b"Content-Length: 50\r\n\r\naction=",
        b"POST /queues HTTP/1.1\r\n" + host + form + b"Content-Length: -1\r\n\r\n",
        b"POST /queues HTTP/1.1\r\n" + chunked + b"5\r\nactio",
        b"POST /queues HTTP/1.1\r\n" + chunked + b"zz\r\naction=pause",
        b"POST /queues HTTP/1.1\r\n" + host + form + b"Content-Length: 99999999999\r\n\r\na",
        b"\x16\x03\x01\x02\x00\x01",
    )
    for request in requests:
        attacker.send([request], close=True)
    assert dashboard.get("queues")


def test_a_body_that_does_not_end(dashboard: Visitor, attacker: Attacker) -> None:
    head = b"POST /queues HTTP/1.1\r\nHost: " + urlsplit(dashboard.root).netloc.encode() + b"\r\n"
    head += b"Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
    endless = itertools.chain([head], itertools.repeat(b"10000\r\n" + b"a" * 0x10000 + b"\r\n", 400))
    assert attacker.send(endless).status in (0, 403, 413)
    assert dashboard.get("queues")


class Sender:
    """Sends forms to one page with the token and the cookies of a visitor."""

    def __init__(self, visitor: Visitor, attacker: Attacker, target: str) -> None:
        html = visitor.ask(target).page.html
        forms = [form for form in Document(visitor.root, html).forms if form.method == "post"]
        self._attacker = attacker
        self._target = target
        self._token = re.findall(r'name="csrf" value="([^"]+)"', html + visitor.get("queues").html)[0]
        self._cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in visitor.cookies)
        self.actions = sorted(set(re.findall(r'name="action"[^>]* value="([^"]*)"', html)))
        self.fields = sorted({name for form in forms for name in form.fields} - {"csrf", "action"})

    def post(self, body: bytes) -> Reply:
        """The answer to this body with the token before it."""
        token = urlencode({"csrf": self._token}).encode()
        body = token + b"&" + body
        return self._attacker.ask(self._target, "POST", {"Cookie": self._cookies}, body)


def test_feeds_that_no_page_names(attacker: Attacker, filled: Keys) -> None:
    queries = [f"?feed={value}" for value in VALUES if len(value) < 5_000]
    queries += [
        f"?feed=queues%3F{name}%3D{value}" for name in ("page", "match", "x") for value in VALUES[:12]
    ]
    queries += [
        "?feed",
        "?feed=&feed=",
        "?" + "feed=overview&" * 2_000,
        "?%ff=%fe",
        "?feed=queues%3F%00%26%26",
    ]
    with ExitStack() as stack:
        streams = [stack.enter_context(attacker.stream(f"/events{query}")) for query in queries]
        assert [query for query, stream in zip(queries, streams, strict=True) if not stream.is_served()] == []


@pytest.mark.fault("Q3")
def test_a_thousand_viewers_come_at_once_and_break_off(dashboard: Visitor, attacker: Attacker) -> None:
    # Both ends of each are open files of this process.
    viewers = min(1_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 3)
    for _ in range(2):
        with ExitStack() as stack:
            streams = [stack.enter_context(attacker.stream("/events")) for _ in range(viewers)]
            assert all(stream.is_served() for stream in streams)
            assert dashboard.get("queues")
    assert dashboard.get("queues")
