"""Results over HTTP: a real server runs what a program enqueued; waits for many jobs; who sees what."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import redis

from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import JobState, pack_answer
from pyworkers.web import app
from tests.helpers.server_process import serving
from tests.helpers.support import PATIENCE_S, wait_for
from tests.integrations.web import served
from tests.web.programs import As, Program, Reply
from tests.web.test_users import line

CODE = """
@worker.job(queue="math", retry=False)
def add(one, other):
    if other is None:
        raise ValueError("no number")
    return {"sum": one + other, "token": "mine"}
"""


def test_a_program_enqueues_and_gets_the_result(
    program: As,
    tmp_path: Path,
    one_redis_url: str,
    namespace: str,
) -> None:
    enqueuer = program("enqueue")

    def result_of(*args: Any) -> dict[str, Any]:
        job = {"queue": "math", "class": "add", "args": args, "track": 60}
        jid = enqueuer.ask("POST", "/jobs", job).value["jid"]
        found: dict[str, Any] = enqueuer.get(f"/jobs/{jid}?wait=30")
        return found

    with serving(tmp_path, one_redis_url, namespace, CODE):
        done, failed = result_of(1, 2), result_of(1, None)
    assert (done["state"], done["result"]) == ("done", {"sum": 3, "token": "mine"})
    assert (failed["state"], failed["error"], failed["result"]) == ("failed", "ValueError: no number", None)
    # The mask of people; what programs read is theirs.
    shown = program("read").get(f"/jobs/{done['jid']}?wait=1")
    assert shown["result"]["sum"] == 3 and shown["result"]["token"] != "mine"


def test_many_wait_by_one_read(program: As, db: redis.Redis, keys: Keys) -> None:
    enqueuer = program("enqueue")
    job = {"queue": "q", "class": "C", "args": ["secret"], "track": 60}
    jids = [made["jid"] for made in enqueuer.ask("POST", "/jobs", [job] * 12).value["jobs"]]

    def read(jid: str) -> Reply:
        return enqueuer.ask("GET", f"/jobs/{jid}?wait=30")

    with ThreadPoolExecutor(len(jids)) as programs:
        before = time.monotonic()
        answers = [programs.submit(read, jid) for jid in jids]
        wait_for(lambda: db.info("clients")["blocked_clients"])
        assert {db.info("clients")["blocked_clients"] for _ in range(50)} <= {0, 1}
        for jid in jids[1:]:
            db.xadd(keys.result(jid), {"v": pack_answer(JobState.DONE, b"7", "", "")})
        ended = [answer.result(PATIENCE_S) for answer in answers[1:]]
        assert {reply.value["result"] for reply in ended} == {7}
        assert not any(b"secret" in reply.body for reply in ended)
        assert not answers[0].done()
        # Another program writes a text in its place: this one ends, the others wait on.
        db.set(keys.result(jids[0]), "text")
        assert answers[0].result(PATIENCE_S).status == 200
    assert time.monotonic() - before < 30


def test_the_state_is_answered_when_the_time_is_over(
    program: As,
    db: redis.Redis,
    keys: Keys,
) -> None:
    enqueuer = program("enqueue")
    tracked = enqueuer.ask("POST", "/jobs", {"queue": "q", "class": "C", "args": ["secret"], "track": 60})
    plain = enqueuer.ask("POST", "/jobs", {"queue": "q", "class": "C", "args": ["secret"]})
    late = enqueuer.ask("GET", f"/jobs/{tracked.value['jid']}?wait=0.2")
    state = {"state": "waiting", "queue": "q", "tracked": True, "result": None}
    assert (late.status, state.items() <= late.value.items()) == (200, True)

    def found() -> Reply:
        return enqueuer.ask("GET", f"/jobs/{plain.value['jid']}?wait=30")

    # It is looked for, for a moment: on a busy machine that may be too short.
    wait_for(lambda: found().value["state"] == "waiting")
    at_once = found()
    assert not at_once.value["tracked"]
    assert not any(b"secret" in reply.body for reply in (late, at_once))
    assert enqueuer.ask("GET", "/jobs/nowhere?wait=30").status == 404
    assert enqueuer.ask("GET", f"/jobs/{plain.value['jid']}?wait=x").status == 400
    # People see the whole job.
    reader, address = program("read"), f"/jobs/{plain.value['jid']}"
    assert wait_for(lambda: reader.get(address).get("job"))["args"] == ["secret"]


def test_a_dashboard_that_ends_answers_those_who_wait(
    one_redis_url: str, namespace: str, tmp_path: Path, db: redis.Redis
) -> None:
    users = tmp_path / "users"
    users.write_text(line("shop", "enqueue"))
    with ThreadPoolExecutor(1) as programs:
        with served(app(one_redis_url, namespace=namespace, auth=users)) as address:
            shop = Program(address, Authorization="Bearer shop:secret")
            jid = shop.ask("POST", "/jobs", {"queue": "q", "class": "C", "track": 60}).value["jid"]
            answer = programs.submit(shop.ask, "GET", f"/jobs/{jid}?wait=30")
            wait_for(lambda: db.info("clients")["blocked_clients"])
        reply = answer.result(PATIENCE_S)
    assert (reply.status, reply.value["state"]) == (200, "waiting")
