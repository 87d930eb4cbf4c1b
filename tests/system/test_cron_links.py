"""Cron slots whose jobs a worker makes: client middleware, keys and functions of the application."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from pyworkers.api import CronSet
from pyworkers.errors import BadArgumentError
from tests.helpers.server_process import Serve, ServerProcess, serving
from tests.helpers.support import wait_for

APP = """
@worker.client_middleware
def tenant(draft, call_next):
    note("link", os.getpid())
    return call_next(draft.with_extra(tenant=7))

@worker.cron(every="1s")
@worker.job(track=60)
def tick():
    message = current_message()
    note("tick", message.data["cron"]["slot"], message.data["tenant"])
"""


def slots_of(server: ServerProcess, word: str = "tick") -> list[int]:
    return [int(note[2]) for note in server.ledger() if note[1] == word]


def test_a_slot_passes_the_client_middleware_once_in_a_worker(serve_either: Serve) -> None:
    with serve_either(APP) as server:
        wait_for(lambda: len(slots_of(server)) >= 3)
        server.stop()
        links = [note[0] for note in server.ledger() if note[1] == "link"]
        assert server.pid not in links
        ticks = [note[2:] for note in server.ledger() if note[1] == "tick"]
        assert all(rest == [7] for _, *rest in ticks)
        fired = [event["slot"] for event in server.events("cron.fired")]
        assert sorted(slots_of(server)) == fired[: len(ticks)]
        # The stop may have come between the link and the push.
        assert len(links) - len(fired) in (0, 1)


def test_the_job_of_a_slot_keeps_its_lock_on_the_way_through_a_worker(serve_either: Serve) -> None:
    app = APP.replace("track=60", "unique_for=600").replace("def tick():", 'def tick():\n    meet("go")')
    with serve_either(app) as server:
        server.wait_for_notes(1, "go")
        wait_for(lambda: len(server.events("cron.duplicate")) >= 2)
        [fired] = server.events("cron.fired")
        assert {event["jid"] for event in server.events("cron.duplicate")} == {fired["jid"]}
        server.let_go("go")
        wait_for(lambda: len(slots_of(server)) >= 2, message="the lock is released")


@pytest.mark.fault("T5")
def test_a_link_that_raises_or_does_not_call_on_fails_its_slot_alone(serve_either: Serve) -> None:
    app = APP.replace(
        'note("link", os.getpid())',
        """note("link")
    count = sum(line.count("link") for line in ledger.read_text().splitlines())
    if count == 1:
        raise SystemExit("no tenant \\ud800")
    if count == 2:
        return ""
""",
    )
    with serve_either(app) as server:
        wait_for(lambda: slots_of(server))
        [failed] = server.events("cron.failed")
        [dropped] = server.events("cron.dropped")
        assert failed["error"] == "SystemExit: no tenant ?"
        assert failed["slot"] < dropped["slot"] < slots_of(server)[0]
        assert "no tenant" in str(server.events("link.failed")[0])
        assert server.events("worker.lost") == []


@pytest.mark.fault("T5")
def test_a_slot_is_not_lost_with_the_worker_that_makes_its_job(serve_either: Serve) -> None:
    app = APP.replace('every="1s"', 'every="1s", misfire="all"').replace(
        'note("link", os.getpid())',
        """note("link")
    if ledger.read_text().count("link") in (1, 3):
        os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    with serve_either(app) as server:
        wait_for(lambda: len(slots_of(server)) >= 3)
        failed = server.events("cron.failed")
        assert len(failed) == 2
        assert all(event["error"] == "the worker that made its job died" for event in failed)
        found = slots_of(server)
        assert found == list(range(failed[0]["slot"], failed[0]["slot"] + len(found)))


def test_busy_workers_delay_no_slot(serve_either: Serve) -> None:
    app = (
        APP
        + """
@worker.process("q", concurrency=1)
def handle(message):
    meet("busy")
"""
    )
    app = app.replace("@worker.job(", '@worker.job(queue="q2", ')
    with serve_either(app) as server:
        server.push("q", {"class": "A", "args": [], "jid": "a"})
        server.wait_for_notes(1, "busy")
        before = len(slots_of(server))
        wait_for(lambda: len(slots_of(server)) >= before + 2)
        server.let_go("busy")


def test_the_arguments_of_an_entry_are_sealed_by_a_worker(
    serve_either: Serve, tmp_path: Path, redis_url: str, namespace: str
) -> None:
    pytest.importorskip("cryptography")
    keys = tmp_path / "keys"
    keys.write_bytes(base64.b64encode(os.urandom(32)) + b"\n")
    app = """
@worker.cron(every="1s", args=["secret words"])
@worker.job(encrypt=True)
def tick(words):
    note("tick", current_message().data["cron"]["slot"], words)
"""
    environment = {"PYWORKERS_ENCRYPTION__KEYS": str(keys)}
    with serve_either(app, **environment) as server:
        wait_for(lambda: slots_of(server))
        assert [note[3] for note in server.ledger()][:1] == ["secret words"]
        entries = CronSet(redis_url, namespace=namespace)
        [job] = entries
        assert job.as_dict()["args"] == ["(encrypted)"]
        with pytest.raises(BadArgumentError, match="cron 'tick' is encrypted"):
            entries.trigger("tick")
        for key in server.redis.scan_iter(f"{namespace}*"):
            assert b"secret" not in (server.redis.dump(key) or b"")
        assert "secret" not in server.log_text()


@pytest.mark.fault("T5")
@pytest.mark.lengthy
@pytest.mark.parametrize("place", ["slots_answered", "cron_after_slot"])
def test_a_slot_is_fired_once_though_the_server_that_has_it_dies(
    tmp_path: Path, redis_url: str, namespace: str, place: str
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    app = APP.replace('every="1s"', 'every="1s", misfire="all"')
    settings = {"PYWORKERS_SERVER__LEASE": "3"}
    failpoint = {"PYWORKERS_FAILPOINTS": f"{place}=kill@2"}
    with serving(tmp_path / "a", redis_url, namespace, app, **settings, **failpoint) as dying:
        wait_for(lambda: dying.exited)
        with serving(tmp_path / "b", redis_url, namespace, app, **settings) as peer:
            [first] = [event["slot"] for event in dying.events("cron.fired")]

            def found() -> set[int]:
                return {*slots_of(dying), *slots_of(peer)}

            wait_for(lambda: {first, first + 1, first + 2} <= found())
            fired = [event["slot"] for event in peer.events("cron.fired")]
            assert len(fired) == len(set(fired))
            assert first not in fired
            assert ((first + 1) in fired) == (place == "slots_answered")
