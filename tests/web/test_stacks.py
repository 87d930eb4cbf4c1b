"""The stack of a running job, on its page and as JSON, of servers that answer and of others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from pyworkers.api import AuditLog
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.stacks import LATE_S, LIFE_S, MOST_CHARACTERS, JobStack, read_stack
from pyworkers.web import app
from tests.helpers.records import job
from tests.helpers.server_process import serving
from tests.helpers.support import wait_for
from tests.integrations.web import served
from tests.web.programs import Program
from tests.web.test_users import line
from tests.web.visitor import Visitor

CODE = """
def deep_inside():
    note("start")
    time.sleep(3600)

@worker.job(queue="mail", concurrency=1)
def hangs():
    deep_inside()
"""
REFRESH = '<meta http-equiv="refresh" content="1; url=/jobs/a">'
ANN = "Bearer ann:secret"


@pytest.fixture
def root(one_redis_url: str, namespace: str, tmp_path: Path) -> Iterator[str]:
    users = tmp_path / "users"
    roles = {"ann": "operate", "mia": "operate@mail", "bob": "operate@bills", "eve": "read"}
    users.write_text("\n".join(line(name, role) for name, role in roles.items()))
    with served(app(one_redis_url, namespace=namespace, auth=users)) as address:
        yield address


def test_the_page_of_a_running_job_shows_where_it_is(
    root: str, tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    visitor = Visitor(f"{root}/")
    with serving(tmp_path, one_redis_url, namespace, CODE) as server:
        server.push("mail", job("a", "hangs"))
        [[pid, _]] = server.wait_for_notes(1, "start")
        wait_for(
            lambda: "hangs" in visitor.ask("running", Authorization=ANN).text, message="the job is shown"
        )
        page = visitor.ask("running", Authorization=ANN).page
        [form] = [form for form in page.forms if "stack" in form.buttons.values()]
        asked = visitor.ask(form.action, {**form.hidden, "action": "stack"}, Authorization=ANN)
        assert "Asked for the stack of a: it is on the page of the job" in asked.text
        assert "Stack and memory" in asked.text

        def shown() -> str:
            text = visitor.ask("jobs/a", Authorization=ANN).text
            return text if "in deep_inside" in text else ""

        assert f"Process {pid}" in wait_for(shown, message="the stack")
        ann, mia = Program(root, Authorization=ANN), Program(root, Authorization="Bearer mia:secret")
        assert mia.get("/jobs/a/stack")["pid"] == pid
        assert ann.done("/jobs/a/stack", "stack") == 1
        wait_for(lambda: ann.get("/jobs/a/stack")["answered"], message="another answer")
        stack = ann.get("/jobs/a/stack")
        assert (stack["queue"], stack["problem"]) == ("mail", "")
        assert "in deep_inside" in stack["text"]
        for name, status in (("bob", 404), ("eve", 403)):
            other = f"Bearer {name}:secret"
            assert Program(root, Authorization=other).ask("GET", "/jobs/a/stack").status == status
            assert Program(root, Authorization=other).act("/jobs/a/stack", "stack").status == 403
            assert "deep_inside" not in visitor.ask("jobs/a", Authorization=other).text
    entries = AuditLog(one_redis_url, namespace=namespace).page().actions
    assert [(entry.who, entry.action, entry.target) for entry in entries] == [("ann", "job.stack", "a")] * 2


def keep(db: redis.Redis, keys: Keys, stack: JobStack) -> None:
    db.set(keys.stack(stack.jid), json.dumps(stack.as_dict()), ex=LIFE_S)


def test_a_request_without_an_answer_is_repeated_until_it_is_late(
    root: str, db: redis.Redis, keys: Keys
) -> None:
    visitor = Visitor(f"{root}/")
    keep(db, keys, JobStack("a", "host:1:a", "mail", time.time()))
    page = visitor.ask("jobs/a", Authorization=ANN).page
    assert "host:1:a is asked; its answer is here in a few seconds" in page.text
    # While the search for the job goes on, the page leads to its next part instead.
    wait_for(lambda: REFRESH in visitor.ask("jobs/a", Authorization=ANN).page.html)
    keep(db, keys, JobStack("a", "host:1:a", "mail", time.time() - LATE_S - 60))
    page = visitor.ask("jobs/a", Authorization=ANN).page
    assert "host:1:a did not answer: it is gone, or of an earlier version." in page.text
    assert REFRESH not in page.html


def test_a_job_that_has_ended_has_a_sentence_for_those_who_operate_its_queue(
    root: str, db: redis.Redis, keys: Keys
) -> None:
    visitor = Visitor(f"{root}/")
    keep(db, keys, JobStack("a", "host:1:a", "mail", time.time(), answered=True, problem="It has ended."))
    texts = {
        name: visitor.ask("jobs/a", Authorization=f"Bearer {name}:secret").text
        for name in ("ann", "mia", "bob", "eve")
    }
    assert [name for name, text in texts.items() if "It has ended." in text] == ["ann", "mia"]


def test_a_server_of_another_program_is_not_asked(root: str, db: redis.Redis, keys: Keys) -> None:
    fields = {"action": "stack", "jid": "a", "server": "host:1:a", "queue": "mail"}
    answer = Visitor(f"{root}/").ask("running", fields, Authorization=ANN)
    assert "host:1:a is no live server of pyworkers: only these show stacks." in answer.text
    assert (db.exists(keys.stack("a")), db.exists(keys.signals("host:1:a"))) == (0, 0)


def test_what_is_stored_is_bounded_and_checked() -> None:
    long = JobStack("a", text="line\n" * MOST_CHARACTERS)
    assert len(long.bounded().text) <= MOST_CHARACTERS + 2
    assert long.bounded().text.endswith("line\n\u2026")
    stored = {"at": float("nan"), "answered": 1, "pid": -1, "rss_kb": 10**30, "text": 7, "problem": "why"}
    assert read_stack("a", stored) == JobStack("a", problem="why")
    assert read_stack("a", {"at": 7, "pid": True, "answered": True}) == JobStack("a", at=7, answered=True)
