"""Enqueueing over HTTP: what is enqueued, what is refused and where, requests that are sent again, roles."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest
import redis

from pyworkers import Client
from pyworkers.api import AuditLog
from pyworkers.api.enqueueing import place_of
from pyworkers.api.target import admin_of
from pyworkers.config.stores import Stores
from pyworkers.http.hosts import Hosts
from pyworkers.protocol.flow.plans import BatchPlan
from pyworkers.protocol.keys import Keys
from pyworkers.web import waiting
from pyworkers.web.application import RESOURCES, assemble
from pyworkers.web.security.access import Local
from pyworkers.web.security.bodies import MOST_BYTES
from pyworkers.web.site import Site, SiteSettings
from tests.integrations.web import served
from tests.web.programs import As, Program
from tests.web.visitor import Answer, Visitor

JOB = {"queue": "mail", "class": "send", "args": [7]}


@pytest.fixture
def enqueuer(program: As) -> Program:
    return program("enqueue")


def jobs_in(db: redis.Redis, keys: Keys, queue: str = "mail") -> list[dict[str, Any]]:
    """The jobs of a queue, the oldest first."""
    return [json.loads(raw) for raw in reversed(db.lrange(keys.queue(queue), 0, -1))]


def test_a_job_is_enqueued_with_the_options_of_a_client(
    enqueuer: Program, db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    with Client(one_redis_url, namespace=keys.namespace) as client:
        client.enlist(BatchPlan("b", "hold", members=["other"]))
        given = {
            "retry": 3,
            "tags": ["x"],
            "track": 60,
            "unique_for": 60,
            "extra": {"tenant": 7},
            "batch": "b",
        }
        reply = enqueuer.ask("POST", "/jobs", {**JOB, "args": [7, {"a": 12345678901234567890123}], **given})
        assert reply.status == 201
        jid = reply.value["jid"]
        [job] = jobs_in(db, keys)
        assert (job["jid"], job["args"]) == (jid, [7, {"a": 12345678901234567890123}])
        assert (job["retry"], job["tags"], job["tenant"], job["batch"]) == (3, ["x"], 7, "b")
        assert client.status(jid).state == "waiting"
        assert db.sismember(f"{keys.batch('b')}:members", jid)
    later = enqueuer.ask("POST", "/jobs", {**JOB, "in": 3600, "jid": "mine"})
    assert (later.status, later.value) == (201, {"jid": "mine"})
    assert db.zcard(keys.schedule) == 1


def test_a_refusal_has_its_status_and_the_place_of_the_value(
    enqueuer: Program, db: redis.Redis, keys: Keys
) -> None:
    held = enqueuer.ask("POST", "/jobs", {**JOB, "unique_for": 60}).value["jid"]
    refusals: list[tuple[Any, int, dict[str, str]]] = [
        ({"class": "send"}, 422, {"path": "/queue"}),
        ({**JOB, "queue": "a b"}, 422, {"path": "/queue"}),
        ({**JOB, "class": "A|B"}, 422, {"path": "/class"}),
        ({**JOB, "args": {"a": 1}}, 422, {"path": "/args"}),
        ({**JOB, "args": [1, {"a/b~": [0, "\ud800"]}]}, 422, {"path": "/args/1/a~1b~0/1"}),
        ({**JOB, "in": -1}, 422, {"path": "/in"}),
        ({**JOB, "in": 1e30}, 422, {"path": "/in"}),
        ({**JOB, "at": "soon"}, 422, {"path": "/at"}),
        ({**JOB, "in": 1, "at": 1}, 422, {"path": "/at"}),
        ({**JOB, "history": True}, 422, {"path": "/history"}),
        ({**JOB, "tags": "x"}, 422, {"path": "/tags"}),
        ({**JOB, "retires": 3}, 422, {"path": "/retires"}),
        ({**JOB, "batch": "nowhere"}, 422, {"path": "/batch"}),
        ({**JOB, "batch": "\ud800"}, 422, {"path": "/batch"}),
        ({**JOB, "encrypt": True}, 422, {"path": "/encrypt"}),
        ({**JOB, "max_waiting": 1, "wait": 31}, 422, {"path": "/wait"}),
        ([JOB, {**JOB, "args": [0, {"x": float(10) ** 10, "y": "\udfff"}]}], 422, {"path": "/1/args/1/y"}),
        ([JOB, 7], 422, {"path": "/1"}),
        ([JOB, {**JOB, "batch": "nowhere"}], 422, {"path": "/1/batch"}),
        (7, 422, {"path": ""}),
        ({**JOB, "unique_for": 60}, 409, {"jid": held}),
        ({**JOB, "unique_for": 60, "on_duplicate": "raise"}, 409, {"jid": held}),
        ({**JOB, "max_waiting": 1}, 429, {}),
        (b"{", 400, {}),
        (b'{"queue": NaN}', 400, {}),
        (b" " * (MOST_BYTES + 1), 413, {}),
    ]
    for body, status, facts in refusals:
        reply = enqueuer.ask("POST", "/jobs", body)
        found = {name: text for name, text in reply.value.items() if name != "error"}
        assert (reply.status, found) == (status, facts), (body, reply.body)
        assert reply.value["error"], body
    misspelt = enqueuer.ask("POST", "/jobs", {**JOB, "timeot": 7}).value["error"]
    assert "did you mean timeout? a field" in misspelt
    assert enqueuer.ask("POST", "/jobs", JOB, Content_Type="text/plain").status == 415
    assert enqueuer.ask("GET", "/jobs").headers["allow"] == "POST"
    assert [job["jid"] for job in jobs_in(db, keys)] == [held]


def test_the_place_of_a_deep_value_is_found_by_one_walk() -> None:
    checked = 0

    class Counted(str):
        def encode(self, *args: Any, **named: Any) -> bytes:
            nonlocal checked
            checked += 1
            return super().encode(*args, **named)

    value: Any = [*[Counted("x")] * 10, "\ud800"]
    for _ in range(400):
        value = [value]
    assert place_of({"args": value}, "args") == "/args" + "/0" * 400 + "/10"
    assert checked == 10


def test_an_array_is_enqueued_all_or_nothing_for_each_thousand(
    enqueuer: Program, db: redis.Redis, keys: Keys
) -> None:
    held = enqueuer.ask("POST", "/jobs", {**JOB, "unique_for": 60}).value["jid"]
    several = enqueuer.ask("POST", "/jobs", [{**JOB, "unique_for": 60}, {**JOB, "args": [8]}])
    [duplicate, new] = several.value["jobs"]
    assert (several.status, duplicate) == (201, {"jid": held, "duplicate": True})
    assert (jobs_in(db, keys)[1]["jid"], new["duplicate"]) == (new["jid"], False)
    crowd = [{"queue": "many", "class": "C", "args": [number]} for number in range(1500)]
    full = enqueuer.ask("POST", "/jobs", [*crowd, {**crowd[0], "max_waiting": 1}])
    assert (full.status, "the queue 'many' is full" in full.value["error"]) == (429, True)
    assert len(full.value["jobs"]) == db.llen(keys.queue("many")) == 1000
    assert full.value["path"] == "/1500"
    again = enqueuer.ask("POST", "/jobs", [crowd[0], {**crowd[0], "max_waiting": 1}, *crowd])
    assert (again.status, again.value["path"], "jobs" in again.value) == (429, "/1", False)
    assert db.llen(keys.queue("many")) == 1000
    assert enqueuer.ask("POST", "/jobs", []).value == {"jobs": []}


def test_a_request_that_is_sent_again_enqueues_nothing(
    program: As, enqueuer: Program, db: redis.Redis, keys: Keys
) -> None:
    body = [{"queue": "many", "class": "C", "args": [number]} for number in range(1500)]
    with ThreadPoolExecutor(5) as senders:
        ask = lambda _: enqueuer.ask("POST", "/jobs", body, Idempotency_Key="k")  # noqa: E731
        replies = list(senders.map(ask, range(5)))
    assert [reply.status for reply in replies] == [201] * 5
    assert len({reply.body for reply in replies}) == 1
    assert sum("idempotent-replayed" not in reply.headers for reply in replies) >= 1
    assert db.llen(keys.queue("many")) == 1500
    assert enqueuer.ask("POST", "/jobs", body, Idempotency_Key="k").headers["idempotent-replayed"] == "true"
    other = enqueuer.ask("POST", "/jobs", body[1:], Idempotency_Key="k")
    assert (other.status, "was used for another request" in other.value["error"]) == (422, True)
    # The key belongs to the user.
    assert program("operate").ask("POST", "/jobs", body[1:], Idempotency_Key="k").status == 201
    assert enqueuer.ask("POST", "/jobs", JOB, Idempotency_Key="").status == 400
    assert enqueuer.ask("POST", "/jobs", JOB, Idempotency_Key="x" * 256).status == 400


def test_another_request_with_a_used_key_enqueues_nothing(
    enqueuer: Program, db: redis.Redis, keys: Keys
) -> None:
    held = {**JOB, "unique_for": 60}
    enqueuer.ask("POST", "/jobs", held)
    # A thousand duplicates leave no receipt of their own: that of the last job is the receipt of all.
    assert enqueuer.ask("POST", "/jobs", [held] * 1000 + [JOB], Idempotency_Key="k").status == 201
    other = enqueuer.ask("POST", "/jobs", [JOB] * 1001, Idempotency_Key="k")
    assert (other.status, other.value["path"], "jobs" in other.value) == (422, "", False)
    assert db.llen(keys.queue("mail")) == 2


def test_a_refused_request_may_be_sent_again_with_its_key(
    enqueuer: Program, db: redis.Redis, keys: Keys
) -> None:
    enqueuer.ask("POST", "/jobs", {**JOB, "unique_for": 60})
    for body, status in ({**JOB, "unique_for": 60}, 409), ({**JOB, "max_waiting": 1}, 429):
        assert enqueuer.ask("POST", "/jobs", body, Idempotency_Key=str(status)).status == status
        db.delete(keys.queue("mail"), *db.scan_iter(keys.unique("*")))
        assert enqueuer.ask("POST", "/jobs", body, Idempotency_Key=str(status)).status == 201


def test_a_request_waits_for_room_if_it_says_so(enqueuer: Program, db: redis.Redis, keys: Keys) -> None:
    enqueuer.ask("POST", "/jobs", JOB)
    timer = threading.Timer(0.2, lambda: db.delete(keys.queue("mail")))
    timer.start()
    assert enqueuer.ask("POST", "/jobs", {**JOB, "max_waiting": 1, "wait": 20}).status == 201
    timer.join()


def test_more_requests_than_a_dashboard_holds_wait_for_no_room(
    enqueuer: Program, db: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST_FOR_ROOM", 1)
    enqueuer.ask("POST", "/jobs", JOB)
    body = {**JOB, "max_waiting": 1, "wait": 30}
    with ThreadPoolExecutor(2) as senders:
        asked = [senders.submit(enqueuer.ask, "POST", "/jobs", body) for _ in range(2)]
        # One of them is refused at once, and the other one waits.
        refused = next(as_completed(asked)).result()
        assert (refused.status, "is full" in refused.value["error"]) == (429, True)
        db.delete(keys.queue("mail"))
        assert sorted(reply.result().status for reply in asked) == [201, 429]


def test_a_queue_of_another_redis_is_refused(one_redis_url: str, namespace: str) -> None:
    admin, token = admin_of(one_redis_url, namespace), "x" * 24
    stores = Stores({"default": admin.config, "archive": admin.config}, {"old": "archive"})
    site = Site(admin, SiteSettings(stores=stores))
    with served(assemble({"default": site}, Local(token), Hosts(()))) as address:
        program = Program(address, Authorization=f"Bearer {token}")
        reply = program.ask("POST", "/jobs", {**JOB, "queue": "old"})
        assert (reply.status, reply.value["path"]) == (422, "/queue")
        assert "the queue is on the Redis 'archive'" in reply.value["error"]
        assert program.ask("POST", "/jobs", JOB).status == 201


def test_a_program_enqueues_and_sees_nothing_else(program: As, root: str, enqueuer: Program) -> None:
    for path in ("", "/", *(resource.path for resource in RESOURCES if resource.read is not None)):
        if path not in ("/jobs", "/jobs/{jid}"):
            reply = enqueuer.ask("GET", path)
            assert (reply.status, "enqueue" in reply.error) == (403, True), path
    assert enqueuer.get("/openapi.json")["paths"]["/jobs"]["post"]
    for resource in RESOURCES:
        for action in resource.actions:
            assert enqueuer.act(resource.path, action.word).status == 403, (resource.path, action.word)
    visitor = Visitor(f"{root}/")
    for page in ("", "queues", "jobs/x", "events", "audit"):
        assert visitor.ask(page, Authorization="Bearer enqueuer:secret").status == 403, page
    assert program("read").ask("POST", "/jobs", JOB).status == 403
    assert program("operate").ask("POST", "/jobs", JOB).status == 201
    assert Program(root).ask("POST", "/jobs", JOB).status == 401


def test_a_job_is_enqueued_with_a_bearer_token_alone(root: str) -> None:
    def log_in(visitor: Visitor, name: str) -> Answer:
        [form] = visitor.ask("").page.forms
        return visitor.ask("login", {**form.hidden, "name": name, "password": "secret"})

    person, program = Visitor(f"{root}/"), Visitor(f"{root}/")
    assert log_in(person, "operater").status == 200
    session = Program(root, Cookie="; ".join(f"{kept.name}={kept.value}" for kept in person.cookies))
    assert session.ask("POST", "/jobs", JOB, X_CSRF_Token=session.get("")["csrf"]).status == 401
    basic = f"Basic {b64encode(b'enqueuer:secret').decode()}"
    assert Program(root, Authorization=basic, Origin=root).ask("POST", "/jobs", JOB).status == 401
    refused = log_in(program, "enqueuer")
    assert (refused.status, "The role enqueue is for programs" in refused.text) == (403, True)


def test_the_audit_has_what_people_enqueue_and_that_a_program_does(
    program: As, enqueuer: Program, one_redis_url: str, namespace: str
) -> None:
    people = program("operate")
    jid = people.ask("POST", "/jobs", JOB).value["jid"]
    people.ask("POST", "/jobs", [JOB, {**JOB, "queue": "other"}])
    first = enqueuer.ask("POST", "/jobs", JOB).value["jid"]
    for _ in range(3):
        enqueuer.ask("POST", "/jobs", JOB)
    found = AuditLog(one_redis_url, namespace=namespace).page().actions
    assert [(entry.who, entry.action, entry.target, entry.result) for entry in reversed(found)] == [
        ("operater", "job.enqueue", "mail", jid),
        ("operater", "job.enqueue", "mail, other", "2 jobs"),
        ("enqueuer", "job.enqueue", "mail", first),
    ]
