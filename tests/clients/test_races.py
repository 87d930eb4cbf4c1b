"""Four languages race for one unique job and for the room in a queue, and add to one batch, with kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import redis

from pyworkers import Client
from pyworkers.plugins.batches import new_batch
from tests.helpers.support import PATIENCE_S, wait_for

ROUNDS, MEMBERS = 200, 80
MANY = 50_000
"""Enough rounds, or enough room, that no racer ends before it is killed."""
LEFT = 300
"""Room for those that are not killed. The test itself fills the rest."""
FILL = """
local many = ARGV[1] - redis.call('LLEN', KEYS[1])
for _ = 1, many do redis.call('LPUSH', KEYS[1], '{}') end
return many
"""


def test_one_client_wins_each_round_and_no_queue_overflows_under_kills(
    node: Path, ruby: Path, go_programs: Path, client_environment: Mapping[str, str]
) -> None:
    commands = _commands(node, ruby, go_programs, "racer")
    # Of each language, one runs to its end, and one is killed: among the rounds, or while the queue fills.
    racers = [_started(command, client_environment) for command in commands * 2]
    killed = racers[len(commands) :]
    with redis.Redis.from_url(client_environment["REDIS_URL"], decode_responses=True) as db:
        try:
            _start_together(racers, killed[:2])
            wait_for(lambda: db.llen("queue:race") >= ROUNDS // 10)
            _kill(killed[:2])
            wait_for(lambda: db.llen("queue:bounded") > 0)
            _kill(killed[2:])
            filled = db.eval(FILL, 1, "queue:bounded", MANY - LEFT)
            # None of them had ended before.
            assert [racer.returncode for racer in killed] == [-signal.SIGKILL] * len(killed)
            ends = [racer.communicate(timeout=PATIENCE_S)[0] for racer in racers[: len(commands)]]
        finally:
            _kill(racers)
        pushed = [json.loads(job) for job in db.lrange("queue:race", 0, -1)][::-1]
        # Those that were killed among the rounds had more of them.
        pushed = [job for job in pushed if job["args"][0]["round"] < ROUNDS]
        assert [job["args"][0]["round"] for job in pushed] == list(range(ROUNDS))
        found = [json.loads(end) for end in ends]
        for about in found:
            assert about["jids"] == [job["jid"] for job in pushed]
        # The jobs of those that were killed have filled the rest.
        assert db.llen("queue:bounded") == MANY >= filled + sum(about["accepted"] for about in found)
        db.delete("queue:race", "queue:bounded")


def test_each_member_of_a_batch_counts_once_though_clients_are_killed(
    node: Path, ruby: Path, go_programs: Path, client_environment: Mapping[str, str]
) -> None:
    client = Client(client_environment["REDIS_URL"])
    with new_batch(client, "race", missing="ignore") as batch:
        last = client.enqueue_in(3600, "clients", "echo")
    commands = _commands(node, ruby, go_programs, "adder")
    # Of each language, one adds all of its members, and one is killed.
    started = [
        [_started([*command, batch.id, str(members)], client_environment) for command in commands]
        for members in (MEMBERS, 10 * MEMBERS)
    ]
    adders, killed = started
    try:
        added = sum(_killed_after(adder, MEMBERS // 4) for adder in killed)
        for adder in adders:
            assert adder.communicate(timeout=PATIENCE_S)[0].endswith(f"\n{MEMBERS}\n")
            added += MEMBERS
    finally:
        _kill(adders + killed)
    # The batch does not end before, and not without it.
    assert batch.status().state == "running"
    assert client.cancel(last) == "removed"
    wait_for(lambda: batch.status().state == "succeeded")
    done = batch.status()
    assert done.total == done.done
    # Each of the killed ones may have added one more, without a word.
    assert added <= done.total <= added + len(commands)


def _commands(node: Path, ruby: Path, go_programs: Path, program: str) -> list[list[str]]:
    """The commands of a program in each language; Python and Go have one program for both races."""
    return [
        [sys.executable, str(Path(__file__).with_name("racer.py"))],
        ["node", str(node / "test" / f"{program}.js")],
        ["ruby", str(ruby / "test" / f"{program}.rb")],
        [str(go_programs / "racer")],
    ]


def _started(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=os.sep
    )


def _start_together(racers: list[subprocess.Popen[str]], endless: list[subprocess.Popen[str]]) -> None:
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(f"{MANY if racer in endless else ROUNDS} {MANY}\n")
        racer.stdin.flush()


def _killed_after(adder: subprocess.Popen[str], members: int) -> int:
    """Kill it when it has added this many members, and return the number that it has printed."""
    assert adder.stdout is not None
    while (line := adder.stdout.readline()) != f"{members}\n":
        assert line
    adder.kill()
    return members + len(adder.stdout.read().split())


def _kill(racers: list[subprocess.Popen[str]]) -> None:
    for racer in racers:
        racer.kill()
    for racer in racers:
        racer.communicate()
