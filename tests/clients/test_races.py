"""Clients in several languages race for one unique job, and for the room in one queue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis

from tests.helpers.support import PATIENCE_S

ROUNDS, ROOM = 200, 100


def test_one_client_wins_each_round_and_no_queue_overflows(
    node: Path, ruby: Path, go_racer: Path, client_environment: Mapping[str, str]
) -> None:
    commands = {
        "python": [sys.executable, str(Path(__file__).with_name("racer.py"))],
        "node": ["node", str(node / "test" / "racer.js")],
        "ruby": ["ruby", str(ruby / "test" / "racer.rb")],
        "go": [str(go_racer)],
    }
    racers = [_started(command, client_environment) for command in commands.values()]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        found = _finish(racers)
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
    with redis.Redis.from_url(client_environment["REDIS_URL"], decode_responses=True) as db:
        pushed = [json.loads(job)["jid"] for job in db.lrange("queue:race", 0, -1)]
        assert len(pushed) == ROUNDS
        for about in found:
            assert about["jids"] == pushed[::-1]
        assert db.llen("queue:bounded") == sum(about["accepted"] for about in found) == ROOM
        db.delete("queue:race", "queue:bounded")


def _started(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=os.sep
    )


def _finish(racers: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Start all at once, and read what each prints at its end."""
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(f"{ROUNDS} {ROOM}\n")
        racer.stdin.flush()
    return [json.loads(racer.communicate(timeout=PATIENCE_S)[0]) for racer in racers]
