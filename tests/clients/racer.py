"""Takes part in the races of test_races.py: prints the jid of each round, and the jobs that found room.

With the id of a batch and a number, it adds this many members to it one by one, and prints each number.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pyworkers import Client
from pyworkers.api.enqueueing import enqueue_all, read, writing_with
from pyworkers.api.target import admin_of

URL = os.environ["REDIS_URL"]


def race() -> None:
    client = Client(URL)
    print("ready", flush=True)
    rounds, room = map(int, input().split())
    jids = [
        client.enqueue("race", "Race", [{"é": [1, 1e21], "round": round_}], unique_for=60)
        for round_ in range(rounds)
    ]
    accepted = 0
    while client.try_enqueue("bounded", "Race", [accepted], max_waiting=room) is not None:
        accepted += 1
    print(json.dumps({"jids": jids, "accepted": accepted}))


def add(batch: str, members: int) -> None:
    admin, writing = admin_of(URL), writing_with(None)
    for number in range(1, members + 1):
        member = {"queue": "clients", "class": "add", "args": [number, 1], "batch": batch}
        enqueue_all(admin, [read(member, time.time(), writing)])
        print(number, flush=True)


if len(sys.argv) > 1:
    add(sys.argv[1], int(sys.argv[2]))
else:
    race()
