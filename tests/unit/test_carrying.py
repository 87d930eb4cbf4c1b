"""Values of structlog's context in the envelope: what is written, what is read, and who knows the names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from structlog.contextvars import bound_contextvars, clear_contextvars, get_contextvars

from pyworkers import Client, Message, Worker
from pyworkers.asyncclient import AsyncClient
from pyworkers.config import carrying
from pyworkers.config.carrying import names_for
from pyworkers.config.loading import load
from pyworkers.errors import ConfigError
from pyworkers.protocol.flow.carrying import FIELD, carried, to_carry
from pyworkers.testing import fake, inline
from tests.helpers.support import ROOT

ID = UUID("12345678-1234-5678-1234-567812345678")


class Broken:
    def __str__(self) -> str:
        raise ValueError


class Plan(Enum):
    FREE = "free"


@pytest.fixture(autouse=True)
def _no_context(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PYWORKERS_LOG__CARRY", raising=False)
    clear_contextvars()
    yield
    clear_contextvars()
    carrying.hand_over(None)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("r-1", "r-1"),
        (7, 7),
        (1.5, 1.5),
        (True, True),
        (ID, str(ID)),
        (Plan.FREE, "Plan.FREE"),
        ("x" * 5000, "x" * 1000),
        ("\ud800", "?"),
        (float("nan"), "nan"),
        (10**30, "1" + "0" * 30),
        pytest.param(10**5000, "<unprintable int>", id="5000 digits"),
        (Broken(), "<unprintable Broken>"),
        ([1, {"a": 2}], "[1, {'a': 2}]"),
    ],
)
def test_a_value_is_written_as_json(value: object, written: object) -> None:
    assert to_carry({"request_id": value, "other": 1}, ["request_id"]) == {"request_id": written}
    json.dumps(written, allow_nan=False)


def test_what_is_unset_is_left_out() -> None:
    assert to_carry({"a": None, "b": ""}, ["a", "b", "c"]) == {"b": ""}


@pytest.mark.parametrize(
    ("field", "found"),
    [
        ({"a": "x", "b": 7, "c": "not wanted"}, {"a": "x", "b": 7}),
        ({"a": ["x"], "b": {"y": 1}}, {}),
        ({"a": None, "b": "x" * 5000}, {"b": "x" * 1000}),
        ("text", {}),
        (["a"], {}),
        (7, {}),
        (None, {}),
    ],
)
def test_another_type_is_ignored(field: object, found: object) -> None:
    assert carried({FIELD: field}, ["a", "b"]) == found


def test_a_job_carries_its_values_on_to_the_jobs_that_it_enqueues() -> None:
    worker, seen = Worker(carry=["request_id", "user"]), list[dict[str, Any]]()

    @worker.job
    def second() -> None:
        seen.append(get_contextvars())

    @worker.job
    async def first() -> None:
        seen.append(get_contextvars())
        await second.aenqueue()

    with fake() as queue:
        with bound_contextvars(request_id="r-1", secret="s"):
            first.enqueue()
            second.enqueue_bulk([(), ()])
            worker.enqueue("default", "second")
            worker.enqueue("default", "second", extra={FIELD: {"user": 7}})
        second.enqueue()
        assert [job.data.get(FIELD) for job in queue.jobs] == [
            *[{"request_id": "r-1"}] * 4,
            {"user": 7},
            None,
        ]
        queue.drain()
    assert seen == [*[{"request_id": "r-1"}] * 4, {"user": 7}, {}, {"request_id": "r-1"}]
    assert get_contextvars() == {}


def test_the_callbacks_of_a_batch_carry_the_values_too() -> None:
    worker, seen = Worker(carry=["request_id"]), list[object]()
    note = worker.job(name="note")(lambda: seen.append(get_contextvars()))
    with inline(), bound_contextvars(request_id="r-1"), worker.batch(on_success=note.call()):
        note.enqueue()
    assert seen == [{"request_id": "r-1"}] * 2


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_without_an_application(kind: type[Client | AsyncClient]) -> None:
    assert kind().client_links == ()
    [link] = kind(carry=["request_id"]).client_links
    with bound_contextvars(request_id="r-1"), fake() as queue:
        client = Client(carry=["request_id"])
        client.enqueue("q", "C")
        assert queue.jobs[0].data[FIELD] == {"request_id": "r-1"}
    assert callable(link)


def test_without_names_there_is_no_field_and_no_link() -> None:
    worker = Worker()
    job = worker.job(name="job")(lambda: None)
    with bound_contextvars(request_id="r-1"), fake() as queue:
        job.enqueue()
        assert FIELD not in queue.jobs[0].data
        job.options(extra={FIELD: {"request_id": "r-2"}}).enqueue()
        queue.drain()
    assert worker.client_links == []
    assert "carry" not in worker.manifest()


def test_cron_slots_need_no_worker_process_for_it() -> None:
    worker = Worker(carry=["request_id"])
    manifest = worker.manifest()
    assert manifest["carry"] == ["request_id"]
    assert "client_middleware" not in manifest
    assert worker.manifest() == manifest
    worker.client_middleware(lambda draft, call_next: call_next(draft))
    assert worker.manifest()["client_middleware"] is True


def test_where_the_names_come_from(tmp_path: Path) -> None:
    path = tmp_path / "workers.toml"
    path.write_text('[log]\ncarry = ["a", "b"]\n[redis]\nnamespace = "x:"\n')
    assert names_for(None, {}) == ()
    assert names_for(None, {}, path) == ("a", "b")
    assert names_for(None, {"PYWORKERS_CONFIG": str(path)}) == ("a", "b")
    assert names_for(None, {"PYWORKERS_CONFIG": str(path), "PYWORKERS_LOG__CARRY": "c, d"}) == ("c", "d")
    assert names_for(None, {}, tmp_path / "missing.toml") == ()
    (tmp_path / "other.toml").write_text("not = [ toml")
    assert names_for(None, {}, tmp_path / "other.toml") == ()
    assert Worker(config=path).carried() == ("a", "b")
    assert len(Client.from_config(path).client_links) == 1
    assert load(path, env={"PYWORKERS_LOG__CARRY": "c"}).log.carry == ("c",)
    carrying.hand_over(["of the server"])
    assert names_for(None, {"PYWORKERS_LOG__CARRY": "c"}, path) == ("of the server",)
    assert names_for(["given"], {}, path) == ("given",)


@pytest.mark.parametrize("names", ["request_id", 7, ["jid"], ["a b"], [""], [7], ["event"]])
def test_a_wrong_name_is_refused(names: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="carry"):
        Worker(carry=names)
    with pytest.raises(ConfigError, match="carry"):
        Client(carry=names)
    path = tmp_path / "workers.toml"
    path.write_text(f"[log]\ncarry = {json.dumps(names)}\n")
    with pytest.raises(ConfigError, match=r"log\.carry"):
        load(path, env={})


def test_a_producer_does_not_import_structlog() -> None:
    code = """
import sys
from pyworkers import Client
from pyworkers.enqueueing.interception import intercept
client = Client(carry=["request_id"])
class Taken:
    def now(self): return 1.5
    def push(self, jobs, owner): print(b"log_context" in jobs[0].payload, "structlog" in sys.modules)
intercept(Taken())
client.enqueue("q", "C")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False False\n"


def test_a_message_shows_the_field() -> None:
    message: Message = Message.parse(b'{"class":"C","args":[],"log_context":{"a":1}}', "q", lambda: "j")
    assert message.data[FIELD] == {"a": 1}
