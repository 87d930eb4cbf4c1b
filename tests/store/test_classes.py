"""Servers that share a queue and do not know each other's jobs: found by their heartbeats."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import redis

from pyworkers import Worker
from pyworkers.config.fields import Config
from pyworkers.config.groups import Only
from pyworkers.protocol.keys import Keys
from pyworkers.server.heartbeat.facts import Facts, declared
from pyworkers.server.plan import plan
from pyworkers.store.flow.classes import Declared, declarations, unaware_servers
from tests.helpers.records import register
from tests.store.conftest import Cli, Run


def server(db: redis.Redis, keys: Keys, identity: str, classes: Any, *queues: str, **fields: Any) -> None:
    stored = classes if isinstance(classes, str) else json.dumps(classes)
    about = {"hostname": "web", "pid": 1, "queues": list(queues), "flow": 99}
    register(db, keys, identity, about, **{"beat": time.time(), "look": 0, "classes": stored, **fields})


def test_check_names_the_servers_and_the_jobs(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    server(db, keys, "shop:1:a", {"q": ["Charge", "Mail"], "own": ["Rest"]}, "q", "own")
    server(db, keys, "shop:2:b", {"q": ["Charge", "Mail"], "own": ["Rest"]}, "q", "own")
    server(db, keys, "blog:1:a", {"q": ["Mail", "Publish"]}, "q")
    lines = cli("check").stdout.splitlines()
    assert [line for line in lines if line.startswith("classes: ")] == [
        "classes: blog:1:a serves the queue 'q' as shop:1:a does, and does not know Charge: "
        "such a job fails there",
        "classes: shop:1:a serves the queue 'q' as blog:1:a does, and does not know Publish: "
        "such a job fails there",
    ]
    findings = json.loads(cli("check", "--json").stdout)["findings"]
    assert [finding["code"] for finding in findings].count("classes") == 2


def test_enqueue_warns_of_a_class_that_no_server_of_the_queue_knows(
    cli: Cli, keys: Keys, db: redis.Redis
) -> None:
    server(db, keys, "shop:1:a", {"q": ["Charge"], "own": ["SendMail"], "raw": None}, "q", "raw")
    assert "SendMal; did you mean SendMail?" in cli("enqueue", "q", "SendMal").stderr
    assert cli("enqueue", "q", "Zzz").stderr == "No server of the queue q knows the class Zzz\n"
    for queue, job_class in (("q", "SendMail"), ("raw", "Zzz"), ("other", "Zzz")):
        assert cli("enqueue", queue, job_class).stderr == ""
    assert db.llen(keys.queue("q")) == 3
    about = {"hostname": "web", "pid": 1, "queues": ["q"]}
    register(db, keys, "ruby:1:a", about, beat=time.time())
    assert cli("enqueue", "q", "Zzz").stderr == ""


def test_enqueue_warns_of_a_queue_that_is_like_one_of_a_server(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    assert cli("enqueue", "maill", "SendMail").stderr == ""
    server(db, keys, "shop:1:a", {"mail": ["SendMail"]}, "mail")
    misspelt = cli("enqueue", "maill", "SendMail")
    assert (misspelt.exit_code, misspelt.stderr) == (0, "No server serves maill; did you mean mail?\n")
    assert db.llen(keys.queue("maill")) == 2
    assert cli("enqueue", "mail", "SendMail").stderr == cli("enqueue", "other", "SendMail").stderr == ""


def test_cron_add_warns_as_enqueue_does(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    server(db, keys, "shop:1:a", {"mail": ["SendMail"]}, "mail")
    add = ("cron", "add", "nightly", "0 3 * * *")
    added = cli(*add, "SendMal", "-q", "mail")
    assert (added.exit_code, added.stderr) == (
        0,
        "No server of the queue mail knows the class SendMal; did you mean SendMail?\n",
    )
    replaced = (*add, "SendMail", "--replace", "-q")
    assert cli(*replaced, "maill").stderr == "No server serves maill; did you mean mail?\n"
    assert cli(*replaced, "mail").stderr == ""
    assert db.hlen(keys.cron_entries) == 1


@pytest.mark.parametrize("stored", ["", "no json", "[]", '{"q": 1}', '{"q": [1]}', "null", "9" * 5000])
def test_a_server_without_a_description_of_its_classes_is_not_judged(
    run_work: Run, keys: Keys, db: redis.Redis, stored: str
) -> None:
    server(db, keys, "odd:1:a", stored, "q")
    server(db, keys, "dead:1:a", {"q": ["A"]}, "q", beat=time.time() - 3600)
    server(db, keys, "web:1:a", {"q": ["B"]}, "q")
    db.sadd(keys.processes, "ruby:1:a", "gone:1:a")
    assert [one.name for one in run_work(declarations(keys))] == ["web:1:a"]


def test_a_job_of_another_queue_and_a_queue_that_takes_every_class_are_no_finding() -> None:
    def one(name: str, **classes: list[str] | None) -> Declared:
        return Declared(name, frozenset(classes), classes)

    def found(*declared: Declared) -> list[tuple[str, str, tuple[str, ...]]]:
        return [(each.name, each.queue, each.classes) for each in unaware_servers(declared)]

    assert found(one("a", q=["A"]), one("b", r=["B"])) == []
    assert found(one("a", q=["A"]), one("b", q=["A"], r=["B"])) == []
    assert found(one("a", q=["A"], r=["B"]), one("b", q=["A", "B"], r=[])) == []
    assert found(one("a", q=["A"]), one("b", q=None)) == []
    assert found(one("a", q=["A"]), Declared("b", frozenset({"q"}), {})) == [("b", "q", ("A",))]


def test_a_server_declares_the_classes_of_all_its_queues() -> None:
    worker = Worker()

    @worker.job(queue="mail", name="Mail")
    def mail() -> None: ...

    @worker.job(queue="mail", name="Bill")
    def bill() -> None: ...

    worker.process("raw")(lambda message: None)
    served = plan(worker.manifest(), Config(), Only({"mail": None}, {}), 2)
    assert served.queues == ["mail"]
    facts = Facts("a", served.groups, [], False, [], served.classes)
    assert json.loads(declared(facts)) == {"raw": None, "mail": ["Mail", "Bill"]}
    many: dict[str, list[str] | None] = {"q": [f"Job{number}" for number in range(3000)]}
    assert declared(Facts("a", served.groups, [], False, [], many)) == ""
