"""Roles for some queues: a person acts on these alone, by pages, JSON, tasks and undo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from starlette.routing import Route

from pyworkers import Client
from pyworkers.api import AuditLog
from pyworkers.api.parameters import Parameter
from pyworkers.config.rights import Rights
from pyworkers.protocol.flow.finished import FinishedFacts
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from pyworkers.web.application import RESOURCES
from tests.helpers.records import raw_job, register
from tests.helpers.support import wait_for
from tests.integrations.web import served
from tests.web.programs import Program
from tests.web.test_finished import keep
from tests.web.test_users import line
from tests.web.visitor import Visitor

MIA = "Bearer mia:secret"
SETS = ("scheduled", "retries", "dead")


def keys_of(keys: Keys) -> dict[str, str]:
    """The keys of the sets of jobs, by the words of their places."""
    return dict(zip(SETS, (keys.schedule, keys.retry, keys.dead), strict=True))


# The text


@pytest.mark.parametrize(
    ("text", "queues", "covered", "others"),
    [
        ("operate", (), ["mail", ""], []),
        ("operate@mail*", ("mail*",), ["mail", "mail:eu"], ["email", ""]),
        (r"enqueue@mail,a\:b,c\,d,e\\", ("mail", "a:b", "c,d", "e\\"), ["a:b", "c,d", "e\\"], ["a", "d"]),
        ("operate@[m]?", ("[m]?",), ["[m]?"], ["ma"]),
    ],
)
def test_a_role_has_names_of_queues(
    text: str, queues: tuple[str, ...], covered: list[str], others: list[str]
) -> None:
    rights = Rights.parse(text)
    assert (rights.queues, str(rights)) == (queues, text)
    assert all(map(rights.cover, covered)) and not any(map(rights.cover, others))


@pytest.mark.parametrize("text", ["", "admin", "operate@", "operate@a,,b", "operate@a\n", "@mail"])
def test_another_text_is_no_role(text: str) -> None:
    with pytest.raises(ValueError):
        Rights.parse(text)


# What it may do


@pytest.fixture
def root(one_redis_url: str, namespace: str, tmp_path: Path) -> Iterator[str]:
    users = tmp_path / "users"
    roles = {"mia": r"operate@mail*,a\:b", "shop": "enqueue@mail*", "ann": "operate"}
    users.write_text("\n".join(line(name, role) for name, role in roles.items()))
    with served(app(one_redis_url, namespace=namespace, auth=users)) as address:
        yield address


@pytest.fixture
def mia(root: str) -> Program:
    """A program of a person who operates the queues ``mail*`` and ``a:b``."""
    return Program(root, Authorization=MIA)


@pytest.fixture
def ann(root: str) -> Program:
    """A program of a person who operates all queues."""
    return Program(root, Authorization="Bearer ann:secret")


@pytest.fixture
def bills(db: redis.Redis, keys: Keys, client: Client, ann: Program) -> dict[str, Any]:
    """A job of the queue ``bills`` in each place, and what else ``mia`` may not change, by its name."""
    jid = client.enqueue("bills", "Bill", [1])
    for place, key in keys_of(keys).items():
        db.zadd(key, {raw_job(place, queue="bills"): 2e9})
    finished = keep(db, keys, FinishedFacts("done", 1.0), {"jid": "f", "queue": "bills"})
    register(db, keys, "host:1:a", {"identity": "host:1:a", "queues": ["bills"]}, busy=1)
    db.hset(keys.work("host:1:a"), "t", '{"queue": "bills", "payload": "{\\"jid\\": \\"r\\"}"}')
    db.zadd(keys.dead, {raw_job("gone", queue="bills"): 3.0})
    gone = next(job["at"] for job in ann.get("/dead")["jobs"] if job["jid"] == "gone")
    assert ann.done("/dead", "delete", jobs=[gone]) == 1
    undo = ann.get("/audit")["actions"][0]["undo"]
    task = ann.act("/dead", "delete").value["task"]
    [at] = (job["at"] for job in ann.get("/queues/bills/jobs")["jobs"])
    return {
        "jid": jid,
        "deletion": undo,
        "id": task,
        "at": at,
        "name": "bills",
        "identity": "host:1:a",
        "key": "x",
        "tag": "x",
        "finished": finished,
    }


def _jobs_of(db: redis.Redis, keys: Keys) -> list[Any]:
    return [db.lrange(keys.queue("bills"), 0, -1), *(db.zrange(key, 0, -1) for key in keys_of(keys).values())]


def _at(ann: Program, place: str) -> str:
    [job] = ann.get("/queues/bills/jobs" if place == "queue" else f"/{place}")["jobs"]
    at: str = job["at"]
    return at


def _value(field: Parameter, ann: Program, place: str) -> Any:
    known = {"server": "host:1:a", "queue": "bills", "jid": "r", "place": "queue:bills", "time": 2e9}
    if field.name in known:
        return known[field.name]
    if field.name in ("at", "jobs"):
        at = _at(ann, place)
        return [at] if field.name == "jobs" else at
    if field.choices:
        return field.choices[0]
    return {"number": 1, "integer": 1, "array": ["x"], "list": ["x"]}.get(field.kind, "x")


def test_each_change_of_another_queue_by_json_is_refused(
    mia: Program, ann: Program, bills: dict[str, Any], one_redis_url: str, namespace: str
) -> None:
    audit = AuditLog(one_redis_url, namespace=namespace)
    before, tried = audit.page().total, 0
    for resource in RESOURCES:
        names = {part: str(bills.get(part.strip("{}"), "x")) for part in resource.segments if part[0] == "{"}
        path = "/" + "/".join(names.get(part, part) for part in resource.segments)
        place = resource.segments[0] if resource.segments[0] in SETS else "queue"
        for action in resource.actions:
            if place in SETS or path == "/queues/bills/jobs":
                fields = {"jobs": [_at(ann, place)]} | ({"time": 2e9} if action.word == "reschedule" else {})
            else:
                some = resource.fields_of(action)
                fields = {field.name: _value(field, ann, place) for field in some if field.required}
                fields |= {"at": bills["finished"]} if place == "queue" and action.word == "again" else {}
            reply = mia.act(path, action.word, **fields)
            if resource.segments[0] == "jobs" and action.word in ("cancel", "stack"):
                # The job waits; the one that runs is at /running.
                assert reply.status == 409
                continue
            assert reply.status == 403, f"{reply.status} for {path}, {action.word}, {fields}: {reply.body!r}"
            assert "only for the queues mail*, a:b" in reply.error
            tried += 1
    assert tried > 40
    assert audit.page().total == before


FORMS: dict[str, dict[str, str]] = {
    "/queues": {"action": "pause", "name": "bills"},
    "/queues/{name}": {"action": "delete", "job": "{at}"},
    "/scheduled": {"action": "run", "job": "{at:scheduled}"},
    "/retries": {"action": "run", "job": "{at:retries}"},
    "/dead": {"action": "run", "job": "{at:dead}"},
    "/jobs/{jid}": {"action": "delete", "in": "queue:bills", "at": "{at}"},
    "/jobs/{jid}/edit": {"action": "edit", "in": "queue:bills", "at": "{at}", "args": "[2]"},
    "/enqueue": {"action": "enqueue", "class": "Bill", "queue": "bills", "args": "[1]"},
    "/tags/{tag}": {"action": "cancel"},
    "/tasks/{id}": {"action": "confirm"},
    "/running": {"action": "cancel", "jid": "r", "server": "host:1:a", "queue": "mail"},
    "/undo/{deletion}": {"action": "undo"},
    "/cron": {"action": "add", "name": "n", "class": "Bill", "schedule": "* * * * *", "queue": "bills"},
    "/cron/{name}": {"action": "pause"},
    "/batches/{id}": {"action": "delete"},
    "/limits/{key}": {"action": "reset"},
    "/locks": {"action": "release", "key": "x"},
    "/servers": {"action": "quiet", "identity": "host:1:a"},
    "/servers/{identity}": {"action": "quiet"},
    "/alarms": {"action": "silence", "name": "x", "subject": "x"},
    "/thresholds": {"action": "set", "match": "bills", "measure": "waiting", "above": "1"},
    "/problems": {"action": "mute", "code": "x", "number": "1"},
    "/finished": {"action": "again", "at": "{finished}"},
}
"""By the path of each route that changes something: a form for what is of another queue."""


@pytest.mark.parametrize("match", ["", "bills", "mail*", "[m]ail", "a:b\u00a0", "a:b\x1c"])
def test_a_threshold_of_more_than_the_own_queues_is_refused(
    mia: Program, db: redis.Redis, keys: Keys, match: str
) -> None:
    assert mia.done("/thresholds", "set", threshold="a:b waiting > 1") == 1
    for action in ("set", "remove"):
        assert mia.act("/thresholds", action, threshold=f"{match} waiting > 2").status == 403
    assert db.hgetall(keys.thresholds) == {b"a:b waiting": b"1"}


def test_each_form_for_another_queue_is_refused(
    root: str, one_redis_url: str, ann: Program, bills: dict[str, Any], db: redis.Redis, keys: Keys
) -> None:
    routes = app(one_redis_url, auth=None).routes
    posts = {route.path for route in routes if isinstance(route, Route) and "POST" in (route.methods or ())}
    assert posts == set(FORMS)
    ats = {"{at}": _at(ann, "queue")} | {f"{{at:{place}}}": _at(ann, place) for place in SETS}
    kept = _jobs_of(db, keys)
    ats["{finished}"] = bills["finished"].replace(" ", "~20")
    visitor = Visitor(f"{root}/")
    for path, form in FORMS.items():
        address = path.format(**bills)
        fields = {name: ats.get(text, text) for name, text in form.items()}
        answer = visitor.ask(address, fields, Authorization=MIA)
        assert answer.status == 403, f"{answer.status} for {address}: {answer.text[:500]}"
        assert "only for the queues mail*, a:b" in answer.text
    assert kept == _jobs_of(db, keys)


def test_one_acts_on_the_own_queues(mia: Program, client: Client, db: redis.Redis, keys: Keys) -> None:
    client.enqueue("mail", "Send", [1])
    assert mia.done("/queues/mail", "pause") == 1
    [job] = mia.get("/queues/mail/jobs")["jobs"]
    assert mia.done("/queues/mail/jobs", "delete", jobs=[job["at"]]) == 1
    [entry] = mia.get("/audit")["actions"][:1]
    assert mia.done(f"/undo/{entry['undo']}", "undo") == 1
    db.zadd(keys.dead, {raw_job("1", queue="a:b"): 1.0, raw_job("2", queue="bills"): 2.0})
    ats = [job["at"] for job in mia.get("/dead")["jobs"]]
    assert mia.act("/dead", "run", jobs=ats).status == 403
    assert mia.done("/dead", "run", jobs=ats[1:]) == 1


def test_an_action_on_all_takes_the_jobs_of_the_own_queues(
    mia: Program, ann: Program, db: redis.Redis, keys: Keys
) -> None:
    for number in range(6):
        db.zadd(keys.dead, {raw_job(str(number), queue=("mail", "mailing", "bills")[number % 3]): number})
    task = f"/tasks/{mia.act('/dead', 'delete').value['task']}"
    wait_for(lambda: mia.get(task)["state"] == "counted")
    assert (mia.get(task)["selected"], mia.get(task)["filter"]) == (4, {"queues": ["mail*", "a:b"]})
    assert mia.done(task, "confirm") == 1
    wait_for(lambda: mia.get(task)["state"] == "done")
    assert {job["queue"] for job in ann.get("/dead")["jobs"]} == {"bills"}


def test_pages_show_buttons_for_the_own_queues(
    root: str, client: Client, db: redis.Redis, keys: Keys
) -> None:
    for queue in ("mail", "bills"):
        client.enqueue(queue, "Send", [1])
    db.zadd(keys.dead, {raw_job("1", queue="mail"): 1.0, raw_job("2", queue="bills"): 2.0})
    visitor = Visitor(f"{root}/")

    def buttons(path: str) -> list[str]:
        page = visitor.ask(path, Authorization=MIA).page
        return [text for form in page.forms for text in form.buttons.values()]

    assert buttons("queues").count("pause") == 1
    assert "all-delete" in buttons("queues/mail") and "all-delete" not in buttons("queues/bills")
    dead = visitor.ask("dead", Authorization=MIA)
    assert "All jobs of your queues" in dead.text and "operate@mail*" in dead.text
    assert "add" in buttons("cron") and "enqueue" in buttons("enqueue")


def test_a_program_enqueues_into_its_queues(root: str, ann: Program) -> None:
    shop = Program(root, Authorization="Bearer shop:secret")
    job = {"class": "Send", "args": [1]}
    added = shop.ask("POST", "/jobs", {**job, "queue": "mail", "track": 60})
    assert added.status == 201, added.body
    jid = added.value["jid"]
    refused = shop.ask("POST", "/jobs", [{**job, "queue": "mail"}, {**job, "queue": "bills"}])
    assert refused.status == 403 and "is of another queue" in refused.error
    assert len(ann.get("/queues/mail/jobs")["jobs"]) == 1
    assert shop.get(f"/jobs/{jid}")["state"] == "waiting"
    other = ann.ask("POST", "/jobs", {**job, "queue": "bills", "track": 60}).value["jid"]
    assert shop.ask("GET", f"/jobs/{other}").status == 404


def test_a_function_names_queues(one_redis_url: str, namespace: str) -> None:
    words = {"mia": "operate@mail", "max": "operate@"}
    site = app(one_redis_url, namespace=namespace, authorize=lambda request: words[request.headers["x-user"]])
    with served(site) as root:
        visitor = Visitor(f"{root}/")
        assert "operate@mail" in visitor.ask("queues", X_User="mia").text
        assert visitor.ask("queues", X_User="max").status == 403
