"""``pyworkers batches``."""

from __future__ import annotations

import json

import redis

from pyworkers import Client
from pyworkers.protocol.flow.plans import BatchPlan
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import JobState, pack_answer
from tests.store.conftest import Cli


def test_batches_are_listed_shown_and_deleted(cli: Cli, redis_url: str, namespace: str) -> None:
    assert cli("batches").output == "No batches.\n"
    with Client(redis_url, namespace=namespace) as client:
        client.enlist(BatchPlan("b", "hold", {"description": "import 7"}, members=["j1", "j2"]))
    [listed] = json.loads(cli("batches", "--json").output)
    assert (listed["id"], listed["total"], listed["pending"], listed["state"]) == ("b", 2, 2, "running")
    assert "import 7" in cli("batches").output
    shown = json.loads(cli("batches", "show", "b", "--json").output)
    assert shown["members"] == {"waiting": ["j1", "j2"], "failed": [], "dead": []}
    lines = cli("batches", "show", "b").output.splitlines()
    assert {"description     import 7", "success_at      -", "failed          0"} < set(lines)
    assert lines[-3:] == ["waiting members j1 j2", "failed members  -", "dead members    -"]
    assert json.loads(cli("batches", "delete", "b", "--json").output) == {
        "action": "delete",
        "done": 1,
        "deleted": ["b"],
    }
    for words in (["show", "b"], ["delete", "b"]):
        assert cli("batches", *words).exit_code == 1


def test_status_and_result_say_that_an_id_is_not_that_of_a_job(
    cli: Cli, db: redis.Redis, keys: Keys, redis_url: str, namespace: str
) -> None:
    with Client(redis_url, namespace=namespace) as client:
        client.enlist(BatchPlan("b", "hold", {"kind": "chain"}, members=["j1"]))
    status = cli("status", "b")
    assert (status.exit_code, status.stdout) == (1, "state     unknown\n")
    assert status.stderr == "b is a chain: pyworkers batches show b\n"
    waits = cli("result", "b")
    assert (waits.exit_code, waits.stdout) == (1, "")
    assert "no result of the chain b: it is running" in waits.stderr
    assert "pyworkers batches show b" in waits.stderr
    dead = pack_answer(JobState.DEAD, b"", "", "a member is dead")
    db.xadd(keys.result("b"), {"v": dead})
    assert cli("result", "b").stderr == "Error: the chain b is dead: a member is dead\n"
    assert json.loads(cli("result", "b", "--json").stdout)["state"] == "dead"
    with Client(redis_url, namespace=namespace) as client:
        client.enlist(BatchPlan("b2", "hold", {"kind": "group", "size": "1", "answer": "1"}, members=["j1"]))
    late = cli("result", "b2", "--timeout", "0")
    assert (late.exit_code, late.stderr) == (1, "Error: the group b2 has not ended in the time\n")
    other = cli("result", "other")
    assert (other.exit_code, "no result of the job other: " in other.stderr) == (1, True)
    assert cli("status", "other").stderr == ""
