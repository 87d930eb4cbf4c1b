"""Clients in several languages race for one unique job, for the room in one queue, and add to one batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis

from pyworkers import Client
from pyworkers.plugins.batches import new_batch
from tests.helpers.support import PATIENCE_S, wait_for

ROUNDS, ROOM, MEMBERS = 200, 100, 80


def test_one_client_wins_each_round_and_no_queue_overflows(
    node: Path, ruby: Path, go_programs: Path, client_environment: Mapping[str, str]
) -> None:
    commands = {
        "python": [sys.executable, str(Path(__file__).with_name("racer.py"))],
        "node": ["node", str(node / "test" / "racer.js")],
        "ruby": ["ruby", str(ruby / "test" / "racer.rb")],
        "go": [str(go_programs / "racer")],
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


def test_each_member_of_a_batch_counts_once_though_clients_are_killed(
    node: Path, ruby: Path, go_programs: Path, client_environment: Mapping[str, str]
) -> None:
    client = Client(client_environment["REDIS_URL"])
    with new_batch(client, "race", missing="ignore") as batch:
        last = client.enqueue_in(3600, "clients", "echo")
    commands = (
        [str(go_programs / "racer")],
        ["node", str(node / "test" / "adder.js")],
        ["ruby", str(ruby / "test" / "adder.rb")],
        [sys.executable, str(Path(__file__).with_name("racer.py"))],
    )
    adders = [_started([*command, batch.id, str(MEMBERS)], client_environment) for command in commands]
    try:
        for adder in adders[2:]:
            assert adder.stdout is not None
            while adder.stdout.readline() != f"{MEMBERS // 4}\n":
                assert adder.poll() is None
            adder.kill()
        for adder in adders[:2]:
            assert adder.communicate(timeout=PATIENCE_S)[0].endswith(f"\n{MEMBERS}\n")
    finally:
        for adder in adders:
            adder.kill()
            adder.communicate()
    # The batch does not end before, and not without it.
    assert batch.status().state == "running"
    assert client.cancel(last) == "removed"
    wait_for(lambda: batch.status().state == "succeeded")
    done = batch.status()
    assert done.total == done.done
    assert 2 * MEMBERS + 2 * (MEMBERS // 4) <= done.total <= 4 * MEMBERS


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
