"""Large queues and sets for the dashboard: jobs, queues, and servers with running jobs.

Written with plain commands; nothing of pyworkers takes part. Ten million waiting jobs need about 2.5 GB.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from contrib.bench.broker import Broker

_CLASSES = ("SendMail", "Thumbnail", "SyncLedger", "reports.weekly", "Billing::Charge")
JID = f"{5:024x}"
"""The id of one of the oldest jobs in each queue and set."""
_PER_CALL = 50_000
_PER_SERVER = 50
_DAY_S = 86_400
# Minutes are kept for eight hours.
_MINUTES = 480

# KEYS[1] a list, or a sorted set if there are scores. ARGV: the first number, how many jobs, the envelope in
# front of its jid and behind it, the score of number 0 or an empty text, the step of the scores.
_FILL = """
local score, jobs = tonumber(ARGV[5]), {}
for number = ARGV[1], ARGV[1] + ARGV[2] - 1 do
  if score then jobs[#jobs + 1] = score + number * ARGV[6] end
  jobs[#jobs + 1] = ARGV[3] .. string.format('%024x', number) .. ARGV[4]
  if #jobs >= 1000 then redis.call(score and 'ZADD' or 'LPUSH', KEYS[1], unpack(jobs)); jobs = {} end
end
if #jobs > 0 then redis.call(score and 'ZADD' or 'LPUSH', KEYS[1], unpack(jobs)) end
"""


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many of each there are."""

    waiting: int = 10_000_000
    scheduled: int = 1_000_000
    retries: int = 100_000
    dead: int = 9_999
    running: int = 1000
    queues: int = 1000
    classes: int = 200
    """Those with metrics, in each minute of the last day."""
    batches: int = 10_000
    locks: int = 100_000
    limits: int = 1000

    def fill(self, broker: Broker) -> None:
        """Write all of it into this Redis, which is empty."""
        now = time.time()
        broker.client.sadd("queues", "default", *_names(self.queues))
        self._fill_list(broker, now)
        failed = {"error_class": "TimeoutError", "error_message": "no answer in 10 s", "retry_count": 3}
        failed |= {"failed_at": now - _DAY_S, "retried_at": now - 60}
        _fill(broker, "schedule", self.scheduled, {}, now + 60, _DAY_S / max(1, self.scheduled))
        _fill(broker, "retry", self.retries, failed, now + 60, _DAY_S / max(1, self.retries))
        _fill(broker, "dead", self.dead, failed, now - _DAY_S, _DAY_S / max(1, self.dead))
        self._fill_servers(broker, now)
        self._fill_metrics(broker, now)
        self._fill_flow(broker, now)

    def _fill_list(self, broker: Broker, now: float) -> None:
        _fill(broker, "queue:default", self.waiting, {"enqueued_at": now - 3600})
        for name in _names(self.queues):
            _fill(broker, f"queue:{name}", 3, {"enqueued_at": now - 60, "queue": name})

    def _fill_servers(self, broker: Broker, now: float) -> None:
        for number in range(0, self.running, _PER_SERVER):
            identity = f"web-{number:04}:{number + 100}:0123456789ab"
            queues = ["default", *_names(self.queues)][number : number + _PER_SERVER]
            info = {"hostname": identity.partition(":")[0], "pid": number + 100, "identity": identity}
            info |= {"started_at": now - 3600, "concurrency": _PER_SERVER, "queues": queues, "labels": []}
            facts: dict[Any, Any] = {
                "info": json.dumps(info),
                "busy": _PER_SERVER,
                "beat": now,
                "quiet": "false",
            }
            work: dict[Any, Any] = {
                f"worker-{place}": _work(number + place, now) for place in range(_PER_SERVER)
            }
            with broker.client.pipeline() as pipe:
                pipe.sadd("processes", identity)
                pipe.hset(identity, mapping=facts | {"rss": 60_000, "rtt_us": 150})
                pipe.hset(f"{identity}:work", mapping=work)
                pipe.execute()

    def _fill_metrics(self, broker: Broker, now: float) -> None:
        counts = {"p": 90, "f": 3, "ms": 4500}
        fields: dict[Any, Any] = {
            f"Class{number:03}|{name}": count
            for number in range(self.classes)
            for name, count in counts.items()
        }
        if not fields:
            return
        for minutes in range(_DAY_S // 60):
            moment = datetime.fromtimestamp(now - minutes * 60, UTC)
            with broker.client.pipeline(transaction=False) as pipe:
                # 8.x's minute, and every tenth time its ten minutes (protocol.md, Counters).
                if minutes < _MINUTES:
                    pipe.hset(f"j|{moment:%y%m%d}|{moment.hour}:{moment.minute:02}", mapping=fields)
                if minutes % 10 == 0:
                    pipe.hset(f"j|{moment:%y%m%d}|{moment.hour}:{moment.minute // 10}", mapping=fields)
                pipe.execute()

    def _fill_flow(self, broker: Broker, now: float) -> None:
        batch: dict[Any, Any] = {"open": 0, "total": 9, "done": 9, "created_at": now, "description": "import"}
        with broker.client.pipeline(transaction=False) as pipe:
            for number in range(self.batches):
                pipe.zadd("pyworkers:batches", {f"batch-{number}": now + number})
                pipe.hset(f"pyworkers:batch:batch-{number}", mapping=batch)
            for number in range(self.locks):
                pipe.set(f"pyworkers:unique:SendMail|default|{number:032x}", _jid(number), ex=_DAY_S)
            for number in range(self.limits):
                pipe.hset("pyworkers:limits", f"tenant:{number}", "10 0")
                pipe.zadd(f"pyworkers:limit:tenant:{number}", {"web:1:a|1 jid": now})
            pipe.execute()


def _jid(number: int) -> str:
    return f"{number:024x}"


def _fill(
    broker: Broker,
    key: str,
    count: int,
    fields: Mapping[str, Any],
    first: float | None = None,
    step: float = 0,
) -> None:
    """Add ``count`` jobs with these fields; ``first`` and ``step`` are the scores in a sorted set."""
    for number in range(0, count, _PER_CALL):
        job_class = _CLASSES[number // _PER_CALL % len(_CLASSES)]
        before, after = _job("\n", job_class, **fields).split("\\n")
        some = min(_PER_CALL, count - number)
        score = "" if first is None else repr(first)
        broker.client.eval(_FILL, 1, key, number, some, before, after, score, repr(step))


def _job(jid: str, job_class: str, **fields: Any) -> str:
    job = {"class": job_class, "jid": jid, "args": [7, "hello"], "queue": "default", "retry": 25}
    return json.dumps(job | {"created_at": 1.7e9} | fields)


def _work(number: int, now: float) -> str:
    payload = _job(f"f{number:023x}", _CLASSES[number % len(_CLASSES)], enqueued_at=now - 90)
    return json.dumps({"queue": "default", "run_at": int(now - number % 600), "payload": payload})


def _names(count: int) -> list[str]:
    return [f"tenant-{number:04}" for number in range(count)]
