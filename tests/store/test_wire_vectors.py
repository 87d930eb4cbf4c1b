"""The published files of the wire are current, and scripts and clients do what the vectors say."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import redis

from contrib.clients.wire import FOLDER, SCRIPTS, files
from pyworkers.errors import EncryptionKeyError
from pyworkers.protocol.flow.canonical import canonical
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.sealing import Keyring
from pyworkers.protocol.wire import LIFE_S, VERSION
from pyworkers.store import calls, scripts
from pyworkers.store.heartbeat import note_wire, spoken

VECTORS = json.loads((FOLDER / "vectors.json").read_text())


def of(section: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in VECTORS[section]]


def test_a_published_script_has_its_version_in_the_first_line() -> None:
    for name in files():
        if name.endswith(".lua"):
            first = (FOLDER / name).read_text().partition("\n")[0]
            assert first == f"-- pyworkers {name.removesuffix('.lua')}, wire {VERSION}"


def test_names_of_cases_are_unique() -> None:
    for section, cases in VECTORS.items():
        names = [case["name"] for case in cases] if isinstance(cases, list) else []
        assert len(set(names)) == len(names), section
    assert len(VECTORS["canonical"]) > 400


def test_the_canonical_form_is_that_of_the_vectors() -> None:
    """Read from the file, so that it is what other languages read."""
    for case in VECTORS["canonical"]:
        if "refused" in case:
            with pytest.raises(ValueError):
                canonical(json.loads(case["json"]))
        else:
            assert canonical(json.loads(case["json"])) == case["canonical"].encode(), case["name"]


@pytest.mark.parametrize("case", of("sealed"))
def test_sealed_arguments_are_opened_or_refused(case: dict[str, Any]) -> None:
    keys = Keyring([base64.b64decode(key) for key in case["keys"]])
    args = [case["sealed"]]
    if "refused" in case:
        with pytest.raises(EncryptionKeyError):
            keys.open(args, case["jid"], case["class"])
    else:
        assert keys.open(args, case["jid"], case["class"]) == json.loads(case["args"])


def test_a_server_notes_its_wire_and_drops_old_notes(db: Any, keys: Keys) -> None:
    now = 1795225197.5
    db.zadd(keys.wire, {"0": now - LIFE_S - 1, "2": now - LIFE_S + 1})
    calls.run(db, note_wire(keys, now))
    assert calls.run(db, spoken(keys)) == ["1", "2"]
    assert 0 < db.ttl(keys.wire) <= LIFE_S


@pytest.fixture
def server(redis_url: str) -> Any:
    # The keys of vectors have one prefix: another database keeps them from other tests.
    url = redis_url.removesuffix("/0") + "/8"
    with redis.Redis.from_url(url, decode_responses=True) as connection:
        connection.flushdb()
        yield connection
        connection.flushdb()


def called(server: Any, script: str, case: dict[str, Any]) -> Any:
    text = scripts.load(SCRIPTS[script]).text
    return server.eval(text, len(case["keys"]), *case["keys"], *case["argv"])


def seen(server: Any, command: list[str]) -> Any:
    reply = server.execute_command(*command)
    return sorted(reply) if isinstance(reply, set) else reply


@pytest.mark.parametrize("case", [case for case in of("pushes") if "plain" not in case.values[0]])
def test_the_push_script_answers_as_its_vector(server: Any, case: dict[str, Any]) -> None:
    for command in case["before"]:
        server.execute_command(*command)
    if "error" in case:
        with pytest.raises(redis.ResponseError, match=case["error"].removeprefix("ERR ")):
            called(server, "push.lua", case)
    else:
        assert called(server, "push.lua", case) == case["reply"]
    for step in case["after"]:
        assert seen(server, step["command"]) == step["reply"], step["command"]


@pytest.mark.parametrize("case", of("batches"))
def test_the_batch_script_answers_as_its_vector(server: Any, case: dict[str, Any]) -> None:
    for step in case["steps"]:
        reply = called(server, step["script"], step) if "script" in step else seen(server, step["command"])
        assert reply == step["reply"], step.get("command", step.get("argv"))


@pytest.mark.parametrize("times", ['"created_at":1.0E+0,"expiry":6.1e1', '"created_at":1,"expiry":61'])
def test_a_callback_expires_as_long_after_its_push_however_its_times_are_written(
    db: redis.Redis, keys: Keys, times: str
) -> None:
    callback = f'q {{"queue":"q","class":"C","args":[],"jid":"j",{times}}}'
    batch = (FOLDER / "batch.lua").read_text()
    named = [keys.queues, keys.schedule, keys.batches]
    made = db.eval(batch, 3, *named, "b", "create", "", "", 1, 0, 0, "on_success", callback, keys.namespace)
    assert made == b"ok"
    job = json.loads(db.lrange(keys.queue("q"), 0, 0)[0])
    assert job["expiry"] == pytest.approx(job["enqueued_at"] + 60, abs=1)
