"""Takes part in the race of test_races.py: prints the jid of each round, and the jobs that found room."""

from __future__ import annotations

import json
import os

from pyworkers import Client

client = Client(os.environ["REDIS_URL"])
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
