"""A crawler follows every link and every search of the dashboard, whatever is in Redis."""

from __future__ import annotations

import http.client
import re
from collections import Counter, deque
from collections.abc import Collection, Iterator
from contextlib import closing
from urllib.parse import urlencode, urlsplit

import pytest
import redis

from pyworkers import Client
from pyworkers.protocol.keys import Keys
from tests.helpers.support import PATIENCE_S
from tests.web import hostile
from tests.web.document import Document, Form
from tests.web.visitor import Visitor

# Of links that differ in names, places and filters alone, this many are followed: more than hostile names.
_MOST_ALIKE = 40
# Of filters and searches: test_hostile_requests.py asks for each with every hostile value.
_MOST_SEARCHES = 12
# More than there are hostile jobs.
_MOST_JOBS = 150
# Where all names are of one kind.
_FEW = 5
_ASKED = (
    "",
    "1",
    "default",
    hostile.TEXTS[0],
    hostile.TEXTS[6],
    hostile.TEXTS[7],
    "\udcff",
    "[(*",
    "9" * 400,
)
"""What the crawler writes into the fields of searches."""


class Crawler:
    """Visits all pages from ``start`` on; ``problems`` has each with its address."""

    def __init__(self, root: str, statuses: Collection[int], most: int, most_jobs: int) -> None:
        self._statuses = statuses
        self._most, self._most_jobs = most, most_jobs
        self._host = urlsplit(root).netloc
        self._waiting: deque[str] = deque()
        self._known: set[str] = set()
        self._alike: Counter[tuple[str, ...]] = Counter()
        self.visited: list[str] = []
        self.problems: list[str] = []

    def crawl(self, *start: str) -> None:
        """Visit ``start`` and all that is linked from there."""
        for path in start:
            self._note(path)
        with closing(http.client.HTTPConnection(self._host, timeout=PATIENCE_S)) as connection:
            while self._waiting:
                self._visit(connection, self._waiting.popleft())

    def _note(self, path: str) -> None:
        # The files have the rows of the JSON, which test_openapi.py asks for with the same data.
        if path.endswith("format=csv"):
            return
        alike = kind(path)
        most = self._most_jobs if alike[0] == "jobs" else self._most
        if "?" in alike and alike[0] != "jobs":
            most = min(most, _MOST_SEARCHES)
        if path not in self._known and self._alike[alike] < most:
            self._known.add(path)
            self._alike[alike] += 1
            self._waiting.append(path)

    def _visit(self, connection: http.client.HTTPConnection, path: str) -> None:
        self.visited.append(path)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self.problems.append(f"{path[:200]}: {len(path)} characters, {error!r}")
            return
        problems = []
        if answer.status >= 500:
            # uvicorn closes it after an exception.
            connection.close()
        if answer.status == 303 and path.startswith(("/jobs?", "/find?", "/appearance?")):
            # An id leads to its job, or its batch; a choice to the page that shows it.
            self._note(answer.headers["Location"])
        elif answer.status not in self._statuses:
            problems.append(f"status {answer.status}")
        policy = answer.headers.get("Content-Security-Policy", "")
        if "default-src 'none'" not in policy or "unsafe" in policy:
            problems.append(f"the policy {policy!r}")
        if answer.headers.get("X-Content-Type-Options") != "nosniff":
            problems.append("no nosniff")
        if answer.headers.get_content_type() == "text/html":
            document = Document(f"http://{self._host}{path}", body.decode())
            problems += document.problems
            for link in (*document.links, *_searches(document.forms)):
                self._note(re.sub("^https?://[^/]*", "", link))
        self.problems += [f"{path[:200]}: {problem}" for problem in problems]


def kind(path: str) -> tuple[str, ...]:
    """What links have in common that differ in names, places and filters alone."""
    parts = urlsplit(path)
    segments = parts.path.strip("/").split("/")
    return (segments[0], str(len(segments)), *segments[2:], "?" if parts.query else "")


def _searches(forms: list[Form]) -> Iterator[str]:
    """The addresses that the search forms of a page lead to, with each text in each field."""
    for form in forms:
        if form.method == "get":
            for text in _ASKED:
                for name in form.texts or ("",):
                    fields = {**form.fields, name: text} if name else form.fields
                    yield f"{form.action.partition('?')[0]}?{urlencode(fields, errors='surrogateescape')}"


def crawled(
    dashboard: Visitor,
    *,
    statuses: Collection[int] = (200,),
    most: int = _MOST_ALIKE,
    most_jobs: int = _MOST_JOBS,
) -> Crawler:
    """The crawler after its work; fails with what is wrong, each kind of problem once."""
    crawler = Crawler(dashboard.root, statuses, most, most_jobs)
    crawler.crawl("/", "/queues")
    kinds = {re.sub(r"[0-9~].*", "", problem): problem for problem in crawler.problems}
    assert not kinds, "\n".join(
        [f"{len(crawler.problems)} problems on {len(crawler.visited)} pages", *kinds.values()]
    )
    return crawler


def test_an_empty_redis(dashboard: Visitor) -> None:
    crawled(dashboard)


@pytest.mark.independent
def test_hostile_data_of_everykind(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    hostile.fill(db, keys)
    crawler = crawled(dashboard)
    assert crawler.visited


def test_keys_of_other_types_than_expected(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    hostile.wrong_types(db, keys)
    # 503: Redis refuses what the page is made of, and the page says so.
    crawled(dashboard, statuses=(200, 503))


@pytest.mark.independent
def test_a_thousand_queues(dashboard: Visitor, one_redis_url: str, namespace: str) -> None:
    with Client(one_redis_url, namespace=namespace) as client:
        for number in range(1_000):
            client.enqueue(f"queue{number}", "Work", [number])
    crawled(dashboard, most=_FEW, most_jobs=_FEW)


def test_addresses_that_lead_nowhere_are_404_and_name_no_reason_for_an_attack(dashboard: Visitor) -> None:
    for path in ("nowhere", "queues/~00/x/y", "static/../secret", "static/~2E~2E", "static/style.css"):
        answer = dashboard.ask(path)
        assert answer.status == 404, path
        assert "Traceback" not in answer.text
