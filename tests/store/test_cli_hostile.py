"""The commands over hostile data: no text of Redis controls the terminal."""

from __future__ import annotations

import json

import pytest
import redis

from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import JobState, pack_answer
from tests.store.conftest import Cli
from tests.web.hostile import NAMES, fill

HOSTILE = "\x1b[2J\x9b\u202e\r\u2028\u200b"
COMMANDS = (
    "audit",
    "batches",
    "check",
    "cron",
    "dead",
    "jobs default",
    "limits",
    "locks",
    "metrics",
    "processes",
    "queues",
    "retries",
    "scheduled",
    "stats",
    "workers",
)
WITH_A_NAME = ("batches show", "cron runs", "dead show", "jobs", "limits show", "status", "stop --dry-run")


def controls(text: str) -> set[str]:
    return {char for char in text if char != "\n" and not char.isprintable()}


@pytest.mark.parametrize("words", COMMANDS)
def test_no_text_of_redis_controls_the_terminal(cli: Cli, db: redis.Redis, keys: Keys, words: str) -> None:
    fill(db, keys)
    shown = cli(*words.split()).output
    assert ("xhostile" in shown, controls(shown)) == (True, set())


@pytest.mark.parametrize("words", WITH_A_NAME)
def test_no_text_of_redis_about_a_name_controls_the_terminal(
    cli: Cli, db: redis.Redis, keys: Keys, words: str
) -> None:
    fill(db, keys)
    for name in (name.decode(errors="surrogateescape") for name in NAMES if name and b"\0" not in name):
        assert (name, controls(cli(*words.split(), "--", name).output)) == (name, set())


def test_no_result_and_no_error_of_a_job_controls_the_terminal(cli: Cli, db: redis.Redis, keys: Keys) -> None:
    returned = json.dumps([HOSTILE], ensure_ascii=False).encode()
    db.xadd(keys.result("done"), {"v": pack_answer(JobState.DONE, returned, "", "")})
    db.xadd(keys.result("dead"), {"v": pack_answer(JobState.DEAD, b"", f"E{HOSTILE}", f"no{HOSTILE}\nline")})
    shown = cli("result", "done").stdout
    assert (controls(shown), json.loads(shown)) == (set(), [HOSTILE])
    assert json.loads(cli("result", "done", "--json").stdout) == {"state": "done", "result": [HOSTILE]}
    escaped = r"\x1b[2J\x9b\u202e\r\u2028\u200b"
    reason = rf"the job dead is dead: E{escaped}: no{escaped}\nline"
    assert cli("result", "dead").stderr == f"Error: {reason}\n"
