"""JSON: what every address answers, how names and values are written, and which requests are refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from urllib.parse import urljoin

import pytest
import redis
from starlette.applications import Starlette
from starlette.routing import Mount

from pyworkers import Client
from pyworkers.api.browse.masking import HIDDEN
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from pyworkers.web.json import table
from tests.helpers.support import free_port
from tests.integrations.web import served
from tests.web.programs import Program
from tests.web.visitor import Visitor


@pytest.fixture
def program(dashboard: Visitor) -> Program:
    """A program on the dashboard of this test."""
    return Program.with_token(dashboard.root)


@pytest.fixture
def program_without_redis() -> Iterator[Program]:
    """A program on a dashboard whose Redis is away."""
    with served(app(f"redis://127.0.0.1:{free_port()}", token="")) as root:
        yield Program(root)


def test_a_name_in_either_encoding(program: Program, db: redis.Redis, keys: Keys) -> None:
    for name in ("a/b", "~", "é\n", ".."):
        db.lpush(keys.queue(name), "{}")
        db.sadd(keys.queues, name)
    for address in ("a%2Fb", "a~2Fb", "%7E", "~7E", "%C3%A9%0A", "~C3~A9~0A", "%2E%2E", "~2E~2E"):
        assert program.get(f"/queues/{address}")["size"] == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/nothing", None, 404, "There is no such address."),
        ("GET", "/queues/none", None, 404, "There is no such queue."),
        ("GET", "/queues/~uD800", None, 404, "There is no such address."),
        ("GET", "/history?days=0", None, 400, "days must be an integer from 1 to 1825."),
        ("GET", "/history?days=x", None, 400, "days must be an integer from 1 to 1825."),
        ("GET", "/history?weeks=1", None, 400, "The parameter 'weeks' is unknown: known are days, format."),
        ("GET", f"/dead?class={501 * 'A'}", None, 400, "class must be a string of at most 500 characters."),
        (
            "POST",
            "/dead",
            {"action": "delete", "text": 501 * "A"},
            400,
            "text must be a string of at most 500",
        ),
        ("POST", "", {}, 405, "Only GET, HEAD."),
        ("POST", "/openapi.json", {}, 405, "Only GET, HEAD."),
        ("POST", "/stats", {}, 405, "Only GET, HEAD."),
        ("DELETE", "/queues/mail", None, 405, "Only GET, HEAD, POST."),
        ("POST", "/queues/mail", b"{", 400, "The body is not JSON:"),
        ("POST", "/queues/mail", b"[" * 100_000, 400, "The body is not JSON: nested too deep."),
        ("POST", "/queues/mail", b"9" * 4301, 400, "The body is not JSON: an integer of more than"),
        ("POST", "/queues/mail", [], 400, "The body must be a JSON object."),
        ("POST", "/queues/mail", {}, 400, "action must be one of pause, resume, clear."),
        ("POST", "/queues/mail", {"action": "stop"}, 400, "action must be one of pause, resume, clear."),
        (
            "POST",
            "/queues/mail",
            {"action": "pause", "a": 1},
            400,
            "The parameter 'a' is unknown: there are none.",
        ),
    ],
)
def test_a_request_that_cannot_be_used(
    program: Program, method: str, path: str, body: object, status: int, text: str
) -> None:
    reply = program.ask(method, path, body)
    assert (reply.status, reply.error[: len(text)]) == (status, text)


def test_problems(program: Program, client: Client) -> None:
    client.enqueue("mail", "Send", [1])
    [problem] = [found for found in program.get("/problems") if found["queue"]]
    assert (problem["severity"], problem["code"], problem["queue"]) == ("error", "unserved", "mail")


def test_jobs_by_page_and_by_search(program: Program, client: Client) -> None:
    jids = [client.enqueue("mail", name, [number]) for number, name in enumerate("ABABA")]
    page = program.get("/queues/mail/jobs?first=1&count=2")
    assert (page["first"], page["total"], [job["jid"] for job in page["jobs"]]) == (1, 5, jids[1:3])
    found = program.get("/queues/mail/jobs?class=A&count=2")
    assert (found["looked_at"], [job["jid"] for job in found["jobs"]]) == (3, [jids[0], jids[2]])
    rest = program.get(f"/queues/mail/jobs?class=A&count=2&cursor={found['cursor']}")
    assert ([job["jid"] for job in rest["jobs"]], rest["cursor"]) == ([jids[4]], "")


def test_a_list_as_a_file_has_all_pages_of_its_filter(program: Program, client: Client) -> None:
    rows = [[f"={number}", {"name": 'a,"b"'}] for number in range(220)]
    jids = client.enqueue_bulk("mail", "A", rows)
    other = client.enqueue("mail", "=B()", [])
    reply = program.ask("GET", "/queues/mail/jobs?format=csv")
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    assert reply.headers["content-disposition"] == 'attachment; filename="queues-jobs.csv"'
    listed = list(csv.DictReader(io.StringIO(reply.body.decode(), newline="")))
    assert [row["jid"] for row in listed] == [*jids, other]
    assert listed[-1]["class"] == "'=B()"
    assert json.loads(listed[1]["args"]) == ["=1", {"name": 'a,"b"'}]
    filtered = program.ask("GET", "/queues/mail/jobs?format=csv&class=A").body
    assert [row["jid"] for row in csv.DictReader(io.StringIO(filtered.decode(), newline=""))] == jids
    # A search that ends within its first page has no second one.
    few = program.ask("GET", f"/queues/mail/jobs?format=csv&jid={other}").body
    assert [row["jid"] for row in csv.DictReader(io.StringIO(few.decode(), newline=""))] == [other]
    page = program.ask("GET", "/queues/mail/jobs?format=csv&first=1&count=2").body
    assert [row["jid"] for row in csv.DictReader(io.StringIO(page.decode(), newline=""))] == jids[1:3]


@pytest.mark.parametrize(
    ("limit", "least", "condition"),
    [
        ("MOST_ROWS", 1, ""),
        ("LONGEST_S", 0.0, ""),
        ("LONGEST_S", 0.0, "&class=A"),
        ("MOST_ROWS", 1, "&text=7"),
    ],
)
def test_a_file_that_ends_before_its_list_says_where_the_next_one_begins(
    program: Program,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    least: float,
    condition: str,
) -> None:
    jids = client.enqueue_bulk("mail", "A", [[f"7-{number}"] for number in range(450)])
    monkeypatch.setattr(table, limit, least)
    found: list[str] = []
    files, following = 0, ""
    while files == 0 or following:
        body = program.ask("GET", f"/queues/mail/jobs?format=csv{condition}{following}").body.decode()
        rows = list(csv.DictReader(io.StringIO(body, newline="")))
        files, following = files + 1, ""
        cells = list(rows[-1].values()) if rows else [""]
        if cells[0].startswith("more: "):
            assert not any(cells[1:])
            following = f"&{cells[0].removeprefix('more: ')}"
            rows.pop()
        found += [row["jid"] for row in rows]
    assert (found, files > 1) == (jids, True)


def test_a_file_is_read_in_the_largest_pages(
    program: Program, client: Client, db: redis.Redis, keys: Keys
) -> None:
    client.enqueue_bulk("mail", "A", [[number] for number in range(250)])
    reads = 0
    with db.monitor() as monitor:
        assert program.ask("GET", "/queues/mail/jobs?format=csv").body.count(b"\n") == 251
        db.echo("end")
        for about in monitor.listen():
            name, _, rest = about["command"].partition(" ")
            if name == "ECHO":
                break
            reads += name in ("EVAL", "EVALSHA") and keys.queue("mail") in rest.split()
    # Two pages; Redis may not know the script.
    assert 2 <= reads <= 3


def test_masked_and_encrypted_arguments_are_hidden(program: Program, db: redis.Redis, keys: Keys) -> None:
    db.lpush(keys.queue("mail"), '{"class":"A","jid":"1","args":[{"user":"u","db":{"PASSWORD":"s3cret"}}]}')
    db.lpush(keys.queue("mail"), '{"class":"A","jid":"2","args":["s3cret"],"encrypted":true}')
    masked, sealed = program.get("/queues/mail/jobs")["jobs"]
    assert masked["args"] == masked["job"]["args"] == [{"user": "u", "db": {"PASSWORD": HIDDEN}}]
    assert "s3cret" not in str(sealed)


def test_without_redis(program_without_redis: Program) -> None:
    reply = program_without_redis.ask("GET", "/queues")
    assert (reply.status, int(reply.headers["retry-after"]) > 0) == (503, True)
    assert reply.error


def test_a_change_without_redis_is_not_done(program_without_redis: Program) -> None:
    begun = program_without_redis.ask("GET", "")
    headers = {"X_CSRF_Token": begun.value["csrf"], "Cookie": begun.headers["set-cookie"].partition(";")[0]}
    reply = program_without_redis.ask("POST", "/queues/mail", {"action": "pause"}, **headers)
    assert (reply.status, reply.error) == (503, "Not done: Redis does not answer.")
    assert int(reply.headers["retry-after"]) > 0


def test_a_page_links_its_json(dashboard: Visitor) -> None:
    links = dashboard.get("queues").links
    addresses = [urljoin(dashboard.root, path) for path in ("/api/queues", "/api/queues?format=csv")]
    assert [link for link in links if "/api" in link] == addresses
    filtered = dashboard.get("retries?class=A&first=51&error=%3D").links
    assert urljoin(dashboard.root, "/api/retries?class=A&error=%3D&format=csv") in filtered
    assert "/api" not in dashboard.ask("nothing").page.html


def test_a_mounted_dashboard(one_redis_url: str, namespace: str, db: redis.Redis, keys: Keys) -> None:
    db.sadd(keys.queues, "a/b")
    inner = app(one_redis_url, namespace=namespace, authorize=lambda request: "operate")

    outer = Starlette(routes=[Mount("/my/jobs", app=inner)])
    with served(outer) as root:
        program = Program.with_token(f"{root}/my/jobs")
        assert program.get("/")["openapi"] == "/my/jobs/api/openapi.json"
        assert program.get("/openapi.json")["servers"] == [{"url": "/my/jobs/api"}]
        assert program.get("/queues/a%2Fb")["name"] == "a/b"
        assert program.done("/queues/a~2Fb", "pause") == 1
        assert program.ask("HEAD", "/queues").body == b""
