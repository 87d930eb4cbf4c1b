"""Lengthy data: valid things of every kind, each name, text and number as long as queues may have them.

Unlike hostile data, all of it is shown: texts without a place to break a line, and numbers of many digits.
"""

from __future__ import annotations

import json
import time
from typing import Any

import redis

from contrib.pictures.shop import job
from pyworkers.api import CronSet
from pyworkers.protocol import flow
from pyworkers.protocol.keys import Keys

# Of letters alone: no browser breaks such a line by itself.
NAME = "Lengthy" + "W" * 121
_MANY = 10**15
_AGO_S = 86_400 * 40
_MEMBERS = ("members", "failed", "dead")


def fill(db: redis.Redis, keys: Keys, where: str) -> None:
    """Write one or two of each kind; ``where`` is the URL of the same Redis."""
    now = time.time()
    error = {"error_class": NAME, "error_message": NAME * 3, "error_backtrace": [NAME * 2] * 3}
    more = {**error, "retry_count": _MANY, "failed_at": now - _AGO_S, "tags": [NAME] * 3, "batch": NAME}
    raw = job(NAME, NAME, [{NAME: [NAME] * 3}, _MANY], NAME, now - _AGO_S, **more)
    db.sadd(keys.queues, NAME)
    db.lpush(keys.queue(NAME), raw)
    for key in (keys.schedule, keys.retry, keys.dead):
        db.zadd(key, {raw: now + _AGO_S})
    _servers(db, keys, raw.decode(), now)
    _flow(db, keys, now)
    _cron(db, keys, CronSet(where, namespace=keys.namespace), now)
    action = dict.fromkeys(("who", "source", "action", "target", "result"), NAME)
    db.lpush(keys.own("audit"), json.dumps({"at": now, **action}))
    alarm = {"name": NAME, "when": "latency", "match": NAME, "to": ["webhook"]}
    db.set(keys.alarming, json.dumps({"alarms": [alarm]}))
    db.hset(keys.thresholds, f"{NAME}* oldest", 10**12 - 1)
    db.hset(keys.alarms, NAME, json.dumps({"since": now, "text": NAME * 3, "pending": [], "error": NAME}))
    sent = {"alarm": NAME, "state": "begun", "to": "webhook", "message": NAME * 3, "at": now, "id": "0" * 16}
    db.lpush(keys.alarms_sent, json.dumps(sent))
    minute = time.gmtime(now - 2 * _AGO_S)
    db.hset(keys.marks(time.strftime("%Y%m%d", minute)), time.strftime("%Y-%m-%dT%H:%M:00Z", minute), NAME)
    for day in ("", f"{time.strftime('%Y-%m-%d', time.gmtime(now))}"):
        db.set(keys.stat("processed", *([day] if day else [])), _MANY)


def _servers(db: redis.Redis, keys: Keys, payload: str, now: float) -> None:
    about: dict[str, Any] = {"hostname": NAME, "pid": 4_194_304, "started_at": now - _AGO_S, "tag": NAME}
    about |= {"concurrency": 100_000, "queues": [NAME] * 3, "labels": [NAME] * 2, "identity": NAME}
    about |= {"version": "1.22.333rc44", "flow": flow.VERSION, "embedded": False}
    group = {"queues": {NAME: 1}, "strict": True, "mode": "process", "processes": 100_000, "busy": 100_000}
    group |= {"concurrency": 100_000, "workers": {"busy": 100_000, "starting": 100_000}, "restarts": 100_000}
    stored: dict[Any, Any] = {"info": json.dumps(about), "groups": json.dumps({NAME: group, "b": group})}
    worker = [NAME, 4_194_304, "starting", 100_000_000, _MANY, int(now)]
    stored |= {"workers": json.dumps([worker] * 2), "busy": 100_000, "beat": int(now), "quiet": "true"}
    stored |= {"rss": 100_000_000, "rtt_us": 10_000_000, "concurrency": 100_000, "look": 2**62}
    db.sadd(keys.processes, NAME)
    db.hset(keys.process(NAME), mapping=stored)
    work = {"queue": NAME, "run_at": int(now - _AGO_S), "payload": payload}
    db.hset(keys.work(NAME), NAME, json.dumps(work))
    db.hset(keys.owners, NAME, json.dumps([NAME]))
    # Active until its job is recovered: its lease has expired, so that it is shown as lost, too.
    db.hset(keys.ordered(NAME), mapping={"identity": NAME, "fence": 7})
    db.lpush(keys.inprogress(NAME, NAME), job(NAME, NAME, [], NAME[::-1], now - _AGO_S))
    progress = json.dumps([_MANY, 2 * _MANY, NAME])
    db.hset(keys.job(NAME), mapping={"state": "running", "queue": NAME, "progress": progress, "error": NAME})


def _flow(db: redis.Redis, keys: Keys, now: float) -> None:
    callback = json.dumps({"class": NAME, "queue": NAME, "jid": NAME, "args": []})
    batch: dict[Any, Any] = {"description": NAME * 2, "kind": "group", "open": 1, "parent": f"1 {NAME}"}
    batch |= {"total": 9 * _MANY, "done": _MANY, "created_at": repr(now - _AGO_S), "on_success": callback}
    db.hset(keys.batch(NAME), mapping=batch)
    db.zadd(keys.batches, {NAME: now + 86_400})
    for part in _MEMBERS:
        db.sadd(f"{keys.batch(NAME)}:{part}", NAME)
    db.hset(keys.limits, mapping={NAME: f"{_MANY} 86400.5", "queue/" + NAME: "5 0"})
    for key in (NAME, "queue/" + NAME):
        db.zadd(keys.limit(key), {f"{NAME}|{NAME} {NAME}": now})
    lock = f"{NAME}|{NAME}|{'f' * 64}"
    db.set(keys.unique(lock), NAME, ex=_AGO_S)
    db.sadd(keys.locks, f"unique:{lock}")


def _cron(db: redis.Redis, keys: Keys, entries: CronSet, now: float) -> None:
    minutes = ",".join(map(str, range(60)))
    zone = "America/Argentina/ComodRivadavia"
    entries.add(NAME, f"{minutes} * * * *", NAME, [NAME] * 3, queue=NAME, timezone=zone)
    run = {"state": "retrying", "queue": NAME, "started_at": repr(now - _AGO_S), "error": NAME * 2}
    for back in (1, 2):
        slot = int(now) - back
        ended = run | {"finished_at": repr(now)} if back == 1 else run
        db.hset(keys.cron_runs(NAME), f"{slot} {NAME}", json.dumps(ended))
