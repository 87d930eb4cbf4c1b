"""Shop: the data of a web shop on an evening with some trouble, as servers and clients would have written it.

Pure but for ``fill``, which writes it into a Redis for the pictures and for tests. No server runs.
"""

from __future__ import annotations

import json
import math
import random
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import redis

from pyworkers.api import CronSet, Stats
from pyworkers.api.target import admin_of
from pyworkers.protocol import flow
from pyworkers.protocol.flow.finished import FinishedFacts, entry
from pyworkers.protocol.histogram import BOUNDS_MS
from pyworkers.protocol.keeping import Keep
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps
from pyworkers.store.counters import histogram_moments, moments
from pyworkers.store.measures.gauges import MINUTE, GaugeEntry, add, fold
from pyworkers.version import __version__

# Queue: its waiting jobs, the seconds that the oldest waits, and the class of its jobs.
QUEUES = {
    "mail": (312, 41, "SendReceipt"),
    "billing": (18, 3, "ChargeCard"),
    "images": (1840, 226, "ResizeImage"),
    "reports": (7, 5400, "BuildReport"),
    "ledger": (3, 1, "PostEntry"),
    "exports": (5, 2700, "ExportOrders"),
    "search": (0, 0, "IndexProduct"),
}
PAUSED, UNSERVED = "reports", "exports"
SERVERS = {
    "shop-1.example:4711:5f0c2a9be431": ("mail", "billing", "images", "search"),
    "shop-2.example:4698:91d7be03ac58": ("mail", "billing", "images", "search"),
    "ledger-1.example:812:c04f7719d2ae": ("ledger", "reports"),
}
# What is wrong this evening: the class and the text of the error, its lines, and how many jobs it has met.
ERRORS = (
    ("mail", "SendReceipt", "TimeoutError", "smtp.example did not answer within 10 s", 11),
    ("billing", "ChargeCard", "CardDeclined", "the bank declined the card: insufficient funds", 4),
    ("images", "ResizeImage", "UnidentifiedImageError", "cannot identify image file 'IMG_2041.heic'", 3),
)
JOB = "b7c94e10a35f4d2e8c61"
"""The dead job of the picture, with a traceback and tags."""
BATCH = "B4c0ffee"
_TRACEBACK = [
    'File "/srv/shop/shop/mail.py", line 48, in send_receipt',
    "    smtp.send_message(message)",
    'File "/usr/lib/python3.12/smtplib.py", line 977, in send_message',
    "    return self.sendmail(from_addr, to_addrs, flatmsg)",
    'File "/usr/lib/python3.12/smtplib.py", line 887, in sendmail',
    "    (code, resp) = self.data(msg)",
    "TimeoutError: smtp.example did not answer within 10 s",
]
_MINUTES = 60


def fill(db: redis.Redis, keys: Keys, where: str) -> None:
    """Write the shop into an empty namespace; ``where`` is the URL of the same Redis."""
    now, rng = time.time(), random.Random(15)
    with db.pipeline(transaction=False) as pipeline:
        _waiting(pipeline, keys, now, rng)
        _failed(pipeline, keys, now, rng)
        _servers(pipeline, keys, now, rng)
        _flow(pipeline, keys, now)
        _counted(pipeline, keys, now, rng)
        _finished(pipeline, keys, now, rng)
        _alarms(pipeline, keys, now)
        _deployed(pipeline, keys, now)
        pipeline.execute()
    admin_of(where, keys.namespace).run(_gauges(keys, now, rng))
    cron = CronSet(where, namespace=keys.namespace)
    cron.add(
        "nightly report", "15 2 * * *", "BuildReport", ["daily"], queue="reports", timezone="Europe/Paris"
    )
    cron.add("sweep baskets", "*/10 * * * *", "SweepBaskets", queue="mail")
    cron.add(
        "newsletter", "0 9 * * mon", "SendNewsletter", ["weekly"], queue="mail", timezone="America/New_York"
    )
    cron.pause("newsletter")
    _ran(db, keys, now)


def minutes_before(now: Stats, seconds: int) -> Iterator[Stats]:
    """The counts of this many seconds, one each, the earliest first; ``now`` are the last ones."""
    rng, found = random.Random(15), [now]
    for second in range(seconds):
        later, failed = found[-1], rng.choice((0, 0, 0, 0, 1, 2))
        done = round(30 + 8 * math.sin(second / 11) + rng.uniform(-3, 3))
        found.append(
            replace(
                later,
                now=later.now - 1,
                processed=later.processed - done - failed,
                failed=later.failed - failed,
                enqueued=later.enqueued + rng.randint(-6, 5),
            )
        )
    return reversed(found)


def job(job_class: str, queue: str, args: list[Any], jid: str, created_at: float, **more: Any) -> bytes:
    """A job as it is in Redis."""
    fields = {"class": job_class, "args": args, "jid": jid, "queue": queue, "retry": True}
    return json.dumps(fields | {"created_at": created_at, "enqueued_at": created_at} | more).encode()


def _args(queue: str, number: int) -> list[Any]:
    known: dict[str, list[Any]] = {
        "mail": [7_000 + number, {"to": f"customer{number}@example.com", "token": "s3cr3t"}],
        "images": [f"products/{number}/front.jpg", {"width": 640, "height": 480}],
        "billing": [{"order": 7_000 + number, "amount": "49.90", "currency": "EUR"}],
    }
    return known.get(queue, [number])


def _jid(rng: random.Random) -> str:
    return f"{rng.getrandbits(96):024x}"


def _waiting(db: redis.Redis, keys: Keys, now: float, rng: random.Random) -> None:
    db.sadd(keys.queues, *QUEUES)
    db.sadd(keys.paused, PAUSED)
    for queue, (size, oldest_s, job_class) in QUEUES.items():
        # The first one that is pushed is the oldest.
        ages = sorted((rng.uniform(0, oldest_s) for _ in range(size - 1)), reverse=True)
        jobs = [
            job(job_class, queue, _args(queue, number), _jid(rng), now - age)
            for number, age in enumerate([oldest_s, *ages][:size])
        ]
        if jobs:
            db.lpush(keys.queue(queue), *jobs)
    for number in range(48):
        at = now + 90 + number * 211
        raw = job("SendReminder", "mail", [7_100 + number], _jid(rng), now - 3600)
        db.zadd(keys.schedule, {raw: at})


def _failed(db: redis.Redis, keys: Keys, now: float, rng: random.Random) -> None:
    for queue, job_class, error, text, count in ERRORS:
        for number in range(count):
            failed_at = now - rng.uniform(60, 3600)
            more = {
                "error_class": error,
                "error_message": text,
                "failed_at": failed_at,
                "retry_count": number % 4,
            }
            raw = job(job_class, queue, _args(queue, number), _jid(rng), failed_at - 5, **more)
            db.zadd(keys.retry, {raw: now + 20 + number * 37})
            if number % 2:
                raw = job(job_class, queue, _args(queue, 90 + number), _jid(rng), failed_at - 90_000, **more)
                db.zadd(keys.dead, {raw: failed_at - 3_600})
    queue, job_class, error, text, _ = ERRORS[0]
    more = {"error_class": error, "error_message": text, "error_backtrace": _TRACEBACK, "retry_count": 24}
    more |= {
        "failed_at": now - 1_900_000,
        "retried_at": now - 240,
        "tags": ["receipt", "vip"],
        "bid": "B4c0ffee",
    }
    db.zadd(keys.dead, {job(job_class, queue, _args(queue, 12), JOB, now - 1_900_100, **more): now - 240})


def _servers(db: redis.Redis, keys: Keys, now: float, rng: random.Random) -> None:
    db.sadd(keys.processes, *SERVERS)
    for place, (identity, queues) in enumerate(SERVERS.items()):
        host, pid, _ = identity.split(":")
        size = _size(queues)
        works: dict[Any, Any] = {}
        for number in range(size - 2 + place):
            queue = queues[number % len(queues)]
            if QUEUES[queue][0] and queue != PAUSED:
                started = int(now - 2 - number * 7)
                payload = job(QUEUES[queue][2], queue, _args(queue, number), jid := _jid(rng), started - 1)
                text = {"queue": queue, "run_at": started, "payload": payload.decode()}
                works[f"{int(pid) + 20 + number}"] = json.dumps(text)
                db.lpush(keys.inprogress(queue, identity), payload)
                progress = json.dumps([number * 11 + 7, 120, "pictures"]) if queue == "images" else ""
                db.hset(keys.job(jid), mapping={"state": "running", "queue": queue, "progress": progress})
        about = {"hostname": host, "pid": int(pid), "started_at": now - 86_400 * (place + 1), "tag": "shop"}
        about |= {"concurrency": size, "queues": list(queues), "labels": [], "identity": identity}
        about |= {"version": __version__, "flow": flow.VERSION, "embedded": False}
        weights = dict.fromkeys(queues, 1)
        group = {"queues": weights, "strict": False, "mode": "process", "processes": size}
        group |= {"concurrency": size, "busy": len(works)}
        group |= {"workers": {"busy": len(works), "idle": size - len(works)}, "restarts": place}
        workers = []
        for number in range(size):
            kb, jobs, started = 61_000 + 1_300 * number, 8_400 - 77 * number, int(now) - 86_000 + 900 * number
            state = "busy" if number < len(works) else "idle"
            workers.append(["default", int(pid) + 20 + number, state, kb, jobs, started])
        stored: dict[Any, Any] = {"info": json.dumps(about), "workers": json.dumps(workers)}
        stored |= {"groups": json.dumps({"default": group}), "busy": len(works)}
        stored |= {"beat": int(now), "quiet": "false", "rss": 184_000 + 9_000 * place, "rtt_us": 310}
        stored |= {"concurrency": size, "worker_heartbeats": "[]", "look": 2**62}
        db.hset(keys.process(identity), mapping=stored)
        if works:
            db.hset(keys.work(identity), mapping=works)
        db.hset(keys.owners, identity, json.dumps(list(queues)))
        db.set(keys.lease(identity), "1", ex=3600)
    db.hset(keys.ordered("ledger"), mapping={"identity": list(SERVERS)[2], "fence": 7})


def _size(queues: tuple[str, ...]) -> int:
    """How many jobs a server of these queues runs at a time."""
    return 4 if "ledger" in queues else 12


def _flow(db: redis.Redis, keys: Keys, now: float) -> None:
    for batch, (text, total, done, dead) in {
        BATCH: ("Invoices of November", 1200, 861, 2),
        "Ba11ad00": ("Catalogue of spring", 340, 340, 0),
    }.items():
        fields: dict[Any, Any] = {
            "description": text,
            "kind": "batch",
            "open": 0,
            "total": total,
            "done": done,
        }
        fields["created_at"] = repr(now - 5_000)
        if total == done:
            fields |= {"complete_at": repr(now - 300), "success_at": repr(now - 300)}
        db.hset(keys.batch(batch), mapping=fields)
        db.zadd(keys.batches, {batch: now + 86_400})
        waiting = [f"{number:024x}" for number in range(total - done - dead)]
        if waiting:
            db.sadd(f"{keys.batch(batch)}:members", *waiting[9:])
            db.sadd(f"{keys.batch(batch)}:failed", *waiting[:9])
            db.sadd(f"{keys.batch(batch)}:dead", *[f"dead{number}" for number in range(dead)])
    identity = next(iter(SERVERS))
    db.hset(keys.limits, mapping={"payments": "5 0", "geocoder": "10 1.004", "queue/mail": "50 60.004"})
    db.zadd(keys.limit("payments"), {f"{identity}|{number}": now - number for number in range(4)})
    db.zadd(keys.limit_waiting("payments"), {f"billing {number:024x}": now + number for number in range(12)})
    for number, name in enumerate(("BuildReport|reports", "SyncStock|search")):
        db.set(keys.unique(f"{name}|{number:032x}"), f"{number + 1:024x}", ex=1800 * (number + 1))
        db.sadd(keys.locks, f"unique:{name}|{number:032x}")


def _counted(db: redis.Redis, keys: Keys, now: float, rng: random.Random) -> None:
    today = datetime.fromtimestamp(now, UTC)
    total = failures = 0
    for back in range(30):
        processed = int(
            41_000 + 9_000 * rng.random() - (14_000 if (today - timedelta(back)).weekday() > 4 else 0)
        )
        failed = int(processed * rng.uniform(0.002, 0.02))
        day = f"{today - timedelta(back):%Y-%m-%d}"
        db.set(keys.stat("processed", day), processed)
        db.set(keys.stat("failed", day), failed)
        total, failures = total + processed, failures + failed
    db.mset({keys.stat("processed"): total, keys.stat("failed"): failures})
    _ran_by_minute(db, keys, today, rng)


def _ran_by_minute(db: redis.Redis, keys: Keys, now: datetime, rng: random.Random) -> None:
    """The runs of two hours by queue and by class, with histograms: the sums alone, for little CPU."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    histograms: dict[str, bytes] = {}
    for minute in range(2 * _MINUTES):
        moment = now - timedelta(minutes=minute)
        for queue, (count, _, _) in QUEUES.items():
            ran = 0 if queue in (PAUSED, UNSERVED) else rng.randint(20, 40) + 60 * (count % 7)
            key = keys.runs(int(now.timestamp() // 60) - minute)
            counts[key].update({f"{queue}|p": ran, f"{queue}|f": ran // 40})
        for place, (count, _, job_class) in enumerate(QUEUES.values()):
            runs, typical, failed = rng.randint(4, 9) + count % 29, 4 + 2 * place, rng.randint(0, 2)
            sums = {"p": runs + failed, "f": failed, "ms": runs * BOUNDS_MS[typical]}
            for key in moments(moment):
                counts[keys.executions(key)].update({f"{job_class}|{name}": n for name, n in sums.items()})
            buckets = [0] * (len(BOUNDS_MS) + 1)
            for _ in range(runs):
                buckets[min(len(BOUNDS_MS), max(0, round(rng.gauss(typical, 1.6))))] += 1
            # As `BITFIELD … u16` writes them.
            packed = struct.pack(f">{len(buckets)}H", *buckets)
            histograms |= {keys.histogram(key): packed for key in histogram_moments(job_class, moment)}
    for key, fields in counts.items():
        db.hset(key, mapping=dict[Any, Any](fields))
    db.mset(dict[Any, Any](histograms))


def _finished(db: redis.Redis, keys: Keys, now: float, rng: random.Random) -> None:
    """The last jobs that have ended, as servers with ``keep`` write them; some have failed for good."""
    db.sadd(keys.finished, "server")
    worker = next(iter(SERVERS)).rpartition(":")[0]
    for number in range(60):
        queue = ("mail", "images", "billing", "search")[number % 4]
        at, wrong = now - 7 * (60 - number), number % 8 == 2
        facts = FinishedFacts(
            "dead" if wrong else "done", at, round(rng.uniform(0.02, 1.8), 3), 3 if wrong else 1,
            worker, 40, f"{ERRORS[1][2]}: {ERRORS[1][3]}" if wrong else "",
        )  # fmt: skip
        raw = job(QUEUES[queue][2], queue, _args(queue, number), _jid(rng), at - 3)
        found = entry(Keep("server", 1000, 86_400, True), facts, json.loads(raw), raw, queue)
        db.xadd(keys.finished_jobs("server"), {"v": found.entry}, id=f"{int(at * 1000)}-0")


def _alarms(db: redis.Redis, keys: Keys, now: float) -> None:
    """What a process of alarms watches, and has sent."""
    watched = [
        {"name": "images wait", "when": "latency", "match": "images", "to": ["slack", "mail"]},
        {"name": "many dead", "when": "dead", "match": "*", "to": ["slack"]},
        {"name": "server is gone", "when": "silent", "match": "*", "to": ["webhook"]},
    ]
    db.set(keys.alarming, json.dumps({"holder": "shop-1.example:4790", "alarms": watched}), ex=3600)
    text = "images: the next job has waited for 3m46s; size 1,840"
    begun = {"since": now - 106, "text": text, "pending": [], "ended": None}
    db.hset(keys.alarms, "images wait", json.dumps(begun))
    for ago_s, alarm, state, to, message in (
        (7_300, "many dead", "begun", "slack", "6 jobs died in the last five minutes"),
        (6_900, "many dead", "ended", "slack", "6 jobs died in the last five minutes"),
        (106, "images wait", "begun", "slack", text),
        (105, "images wait", "begun", "mail", text),
    ):
        sent = {"alarm": alarm, "state": state, "to": to, "message": message, "at": now - ago_s}
        db.lpush(keys.alarms_sent, json.dumps({**sent, "id": f"{alarm[0]}0{state[0]}f00d"}))


def _deployed(db: redis.Redis, keys: Keys, now: float) -> None:
    for label, ago_s in (("v1.4.1", 9 * 86_400), ("v1.4.2", 2_100)):
        minute = datetime.fromtimestamp(now - ago_s, UTC)
        db.hset(keys.marks(f"{minute:%Y%m%d}"), f"{minute:%Y-%m-%dT%H:%M:00Z}", label)


def _gauges(keys: Keys, now: float, rng: random.Random) -> Steps[None]:
    """The gauges of the last two hours."""
    concurrency = sum(map(_size, SERVERS.values()))
    for back in reversed(range(2 * _MINUTES)):
        at = now // 60 * 60 - 60 * back
        waits = {queue: wait for queue in QUEUES if (wait := _wait_s(queue, at - now, rng))}
        longest = dict(sorted(waits.items(), key=lambda item: -item[1]))
        busy = concurrency - 4 - round(3 * math.sin(back / 9)) - rng.randint(0, 3)
        yield from add(keys, MINUTE, GaugeEntry(at, busy, concurrency, longest))
    yield from fold(keys, now)


def _wait_s(queue: str, since_now_s: float, rng: random.Random) -> float:
    """The seconds that the next job of a queue had been waiting at a time before now."""
    oldest_s = QUEUES[queue][1]
    # No server takes their jobs, and too few take the jobs of images.
    if queue in (PAUSED, UNSERVED):
        return round(max(0.0, oldest_s + since_now_s), 1)
    growth = math.exp(since_now_s / 1800) if queue == "images" else 1.0
    return round(oldest_s * growth * rng.uniform(0.7, 1.0), 1)


def _ran(db: redis.Redis, keys: Keys, now: float) -> None:
    """The last runs of the cron entries, and what people did."""
    for name, queue, period_s in (("nightly report", "reports", 86_400), ("sweep baskets", "mail", 600)):
        for back in range(1, 6):
            # The last slot is at least a minute old: its run has an end.
            slot = int((now - 60) // period_s + 1 - back) * period_s
            run = {"state": "done", "queue": queue, "started_at": repr(slot + 1.2)}
            run["finished_at"] = repr(slot + 48.9)
            if back == 3:
                run |= {"state": "dead", "error": "OperationalError: the disk is full"}
            db.hset(keys.cron_runs(name), f"{slot} {back:024x}", json.dumps(run))
    for back, who, action, target, result in (
        (8_000, "ada", "queue.pause", "reports", "paused"),
        (5_400, "bob", "job.retry", JOB, "enqueued"),
        (900, "ada", "server.quiet", next(iter(SERVERS)), "signalled"),
    ):
        fields = {"who": who, "source": "10.1.7.20", "action": action, "target": target, "result": result}
        db.lpush(keys.own("audit"), json.dumps({"at": round(now - back, 3), **fields}))
