"""Records that tests write into Redis in the place of producers and servers: jobs and processes.

Read by the tests alone. The text is plain ``json``, as peers write it; pyworkers has no part in it.
"""

from __future__ import annotations

import json
from typing import Any

import redis

from pyworkers.protocol.keys import Keys


def job(jid: str, job_class: str = "Any", *args: Any, **fields: Any) -> dict[str, Any]:
    """A job as producers write it, with more or other ``fields``."""
    return {"class": job_class, "args": list(args), "jid": jid} | fields


def raw_job(jid: str, **fields: Any) -> bytes:
    """A job of the class ``Add`` for the queue ``q``, as bytes in Redis, with more or other ``fields``."""
    return json.dumps({"class": "Add", "args": [1], "queue": "q", "jid": jid, **fields}).encode()


def register(db: redis.Redis, keys: Keys, identity: str, info: Any, **fields: Any) -> None:
    """A process as its heartbeats show it: ``info`` (a str is written as it is) and other ``fields``."""
    text = info if isinstance(info, str) else json.dumps(info)
    heartbeat: dict[Any, Any] = {"info": text, **fields}
    # First: servers prune a name without a hash.
    db.hset(keys.process(identity), mapping=heartbeat)
    db.sadd(keys.processes, identity)


def hold_order(db: redis.Redis, keys: Keys, queue: str, identity: str, **fields: Any) -> None:
    """A server as the active one of an ordered queue: its name there with other ``fields``, and its lease."""
    order: dict[Any, Any] = {"identity": identity, "fence": 7, **fields}
    db.hset(keys.ordered(queue), mapping=order)
    db.set(keys.lease(identity), "x")
