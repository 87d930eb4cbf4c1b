"""Hostile data: what other programs, attackers and accidents may leave in Redis, for every page at once.

Each text of ``TEXTS`` contains ``xhostile``: as an element or an attribute of a page, it was not escaped.
"""

from __future__ import annotations

import base64
import itertools
import json
import time
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import redis

from pyworkers.protocol.keys import Keys
from pyworkers.store.counters import histogram_moments, moments
from pyworkers.store.processes.decoding import FIELDS

MARK = "xhostile"
LONG = f"{MARK}_" + "long" * 48
ENDLESS = f"{MARK}_" + "e" * 100_000
MEGABYTE = f"{MARK}<{MARK}>" + "m" * 1_000_000
HUGE = int("9" * 400)
TEXTS = (
    f'<script>alert("{MARK}")</script><{MARK}>',
    f'"><{MARK} onclick="alert(1)" {MARK}="',
    f"' {MARK}='1' x='",
    f"</title></textarea></svg>--><{MARK}>",
    f"javascript:alert('{MARK}')",
    f"{{{{ 7 * 7 }}}} {{% raw %}} ${{{MARK}}} &lt;{MARK}&gt; &amp;#60;{MARK}",
    f"\x1b[31m\x00\x07\x08\x7f\x9b {MARK} \r\n\tred",
    f"\u202e{MARK} desrever\u2066 \u200f \ufeff\u200b \u2028\u2029",
    f"{MARK} a\u0300\u0301\u0302 \U0001f4a5 \U0001f468\u200d\U0001f469\u200d\U0001f467 \ufffe ﷽",
    LONG,
    ENDLESS,
)
"""Texts that JSON can hold."""
NAMES = (
    *(text.encode() for text in TEXTS),
    b"",
    b" ",
    b".",
    b"..",
    b"../../etc/xhostile",
    b"/xhostile//",
    b"a%2Fxhostile%00",
    b"a?xhostile=1#b&c;d",
    b"~2F+xhostile",
    b"\xff\xfe xhostile \xc3\x28 \xed\xa0\x80",
    b"\x00",
    b"line\nxhostile\r\nSet-Cookie: xhostile=1",
    b"queue:xhostile",
    b"constructor",
)
"""Names of queues, servers, batches, locks, limits: any bytes."""
SCORES = ("-inf", "inf", "-1e300", "1e300", "0", "-1", "1.7976931348623157e308", "253402300800", "4e18")
_DEEP = b"[" * 5_000 + b"]" * 5_000


@cache
def envelopes() -> tuple[bytes, ...]:
    """Jobs, or what replaces them: each of a shape that no page may fail on."""
    return tuple(_envelopes())


def _envelopes() -> Iterator[bytes]:
    yield from (b"", b"null", b"7", b"[]", b"{}", b'"xhostile"', b"{", b"\x00", b"\xff\xfe<xhostile>")
    yield from (b"<xhostile>no job</xhostile>", b'{"class":"A","args":[Infinity,NaN,-Infinity]}', _DEEP)
    yield b'{"class":"Twice","class":"xhostile","args":[],"args":[1],"jid":"d1","jid":"d2"}'
    yield b'{"class":"Surrogate \\ud800 xhostile","args":["\\udfff"],"jid":"\\ud800"}'
    yield b'{"class":"Deep","jid":"deep","args":[' + _DEEP + b"]}"
    yield b'{"class":"Digits","jid":"digits","args":[1e999,-1e999,0.1e-999,%d]}' % HUGE
    yield b'{"class":"Bytes \xff xhostile","jid":"\xfe","args":["\xed\xa0\x80"]}'
    for number, fields in enumerate(_fields()):
        job: dict[str, Any] = {
            "class": "Hostile",
            "args": [number],
            "jid": f"jid{number}",
            "queue": "default",
        }
        job |= fields
        yield json.dumps({name: value for name, value in job.items() if value is not Ellipsis}).encode()
    yield json.dumps(
        {"class": "Megabyte", "args": [MEGABYTE], "jid": "megabyte", "queue": "default"}
    ).encode()


def _fields() -> Iterator[dict[str, Any]]:
    for text in TEXTS:
        yield {"class": text, "args": [text, {text: [text]}], "jid": text, "queue": text, "tags": [text]}
        yield {"error_class": text, "error_message": text, "error_backtrace": [text] * 3, "bid": text}
        yield {"display_class": text, "wrapped": text, "cron": {"name": text, "slot": text}, text: text}
    values: tuple[Any, ...] = (
        None,
        True,
        -1,
        HUGE,
        1e308,
        -0.0,
        "",
        [],
        {},
        [[]],
        {"xhostile": 1},
        "2026-13-41T99",
    )
    for value in values:
        yield dict.fromkeys(("class", "args", "jid", "queue", "tags", "error_class", "error_message"), value)
        yield dict.fromkeys(("created_at", "enqueued_at", "failed_at", "retried_at", "at", "expiry"), value)
        yield dict.fromkeys(("retry", "retry_count", "crash_count", "timeout", "backtrace", "dead"), value)
        yield dict.fromkeys(
            ("error_backtrace", "bid", "batch", "group", "chain", "cron", "log_context"), value
        )
        yield dict.fromkeys(("unique_key", "unique_for", "encrypt", "encrypted", "track", "history"), value)
    for name in ("class", "args", "jid", "queue"):
        yield {name: ...}
    yield {"jid": "../../xhostile"}
    yield {"jid": "twice", "args": [1]}
    yield {"jid": "twice", "args": [2]}
    yield {"error_backtrace": base64.b64encode(zlib.compress(b'["' + b"b" * 20_000_000 + b'"]')).decode()}
    yield {"error_backtrace": base64.b64encode(b"no deflate").decode(), "error_message": MEGABYTE}
    yield {"error_backtrace": [f"frame {n} <{MARK}>" for n in range(10_000)]}
    yield {
        "class": "Sidekiq::ActiveJob::Wrapper",
        "args": [{"job_class": f"<{MARK}>", "arguments": {"a": 1}}],
    }
    yield {"class": "Sidekiq::ActiveJob::Wrapper", "wrapped": [], "args": ["no object"]}
    yield {"class": "Secret", "args": ["never shown"], "encrypted": True}
    yield {"class": "Keys", "args": [{f"key {n}": n for n in range(5_000)}], "tags": ["tag"] * 2_000}


def fill(db: redis.Redis, keys: Keys) -> None:
    """Fill the namespace with hostile data of every kind; each key has the type that programs expect."""
    jobs = envelopes()
    with db.pipeline(transaction=False) as pipeline:
        _queues(pipeline, keys, jobs)
        for key in (keys.schedule, keys.retry, keys.dead, keys.goretry):
            scored = zip(jobs, itertools.cycle(map(float, SCORES)), strict=False)
            pipeline.zadd(key, dict(scored))
        _servers(pipeline, keys, jobs)
        _tracked(pipeline, keys, jobs)
        _batches(pipeline, keys)
        _deploys(pipeline, keys)
        _locks_and_limits(pipeline, keys)
        _cron(pipeline, keys)
        _counters(pipeline, keys)
        _dashboards(pipeline, keys)
        pipeline.execute()


def wrong_types(db: redis.Redis, keys: Keys) -> None:
    """Make every key of the top level one of another type than programs expect."""
    lists: tuple[str, ...] = (
        keys.queues,
        keys.schedule,
        keys.retry,
        keys.dead,
        keys.paused,
        keys.processes,
        keys.owners,
    )
    lists += (keys.batches, keys.limits, keys.locks, keys.cron_last, keys.cron_entries, keys.cron_paused)
    lists += (keys.suspects, keys.cancelled, keys.own("audit"), keys.watched, keys.stat("processed"))
    lists += (keys.alarming, keys.alarms, keys.thresholds)
    for key in lists:
        db.rpush(key, f"<{MARK}>")


def _named(keys: Keys, name: str, suffix: bytes) -> bytes:
    """A key of the namespace whose name ends with any bytes."""
    return keys.own(name).removesuffix(f"pyworkers:{name}").encode() + name.encode() + suffix


def _queues(db: redis.Redis, keys: Keys, jobs: Sequence[bytes]) -> None:
    db.sadd(keys.queues, "default", "wrong", "empty", *NAMES)
    db.sadd(keys.paused, *NAMES[::2])
    db.lpush(keys.queue("default"), *jobs)
    db.set(keys.queue("wrong"), f"<{MARK}>")
    for portion, name, text in zip(itertools.cycle(("7", "9" * 5_000, "x")), NAMES, TEXTS, strict=False):
        db.hset(keys.moves, name, f"id {portion} {text}")
    for name in NAMES:
        db.lpush(_named(keys, "queue:", name), *jobs[:60:7])
        db.hset(
            _named(keys, "pyworkers:ordered:", name), mapping={"identity": name, "fence": "x", "until": "y"}
        )
        # Only with a lease or a job in progress is it the active server.
        db.lpush(_named(keys, "queue:", name + b":" + name + b":inprogress"), jobs[0])


def _servers(db: redis.Redis, keys: Keys, jobs: Sequence[bytes]) -> None:
    for number, name in enumerate(NAMES):
        db.sadd(keys.processes, name)
        text = TEXTS[number % len(TEXTS)]
        db.hset(_named(keys, "", name), mapping=_server(name, text, number))
        running = {"queue": text, "run_at": number, "payload": job_text(jobs[number])}
        works: dict[Any, Any] = {name or b"-": json.dumps(running).encode()}
        works |= {b"%d" % place: value for place, value in enumerate(_works())}
        db.hset(_named(keys, "", name + b":work"), mapping=works)
        db.hset(keys.owners, name, json.dumps([text, 7, None]))
        db.lpush(_named(keys, "queue:", b"default:" + name + b":inprogress"), *jobs[:5])
    db.sadd(keys.processes, "gone", "wrong-type")
    db.set(keys.process("wrong-type"), MARK)
    for number, info in enumerate((b"", b"{", b"null", b"7", _DEEP, b"\xff", b'{"pid":%d}' % HUGE, b"{}")):
        db.sadd(keys.processes, f"info{number}")
        db.hset(keys.process(f"info{number}"), mapping={"info": info, "beat": "1e999", "busy": "nan"})


def _server(name: bytes, text: str, number: int) -> dict[Any, Any]:
    about: dict[str, Any] = {
        "hostname": text,
        "pid": HUGE if number % 3 else text,
        "started_at": HUGE,
        "tag": text,
    }
    about |= {"queues": [text, "default", 7, None], "labels": [text], "version": text, "identity": text}
    group = {
        "name": text,
        "queues": {text: HUGE},
        "strict": text,
        "mode": text,
        "processes": HUGE,
        "busy": -1,
    }
    values = {"info": about, "groups": [group, 7, {}] if number % 2 else text, "classes": {text: [text]}}
    values["signatures"] = {text: [text, number, None]} if number % 2 else [text]
    stored: dict[Any, Any] = dict.fromkeys(FIELDS, text.encode())
    stored |= {field: json.dumps(value).encode() for field, value in values.items()}
    beat = str(time.time()).encode() if number % 2 else b"inf"
    worker: list[Any] = [text, HUGE, text, -1, "x", HUGE]
    stored["workers"] = json.dumps([worker, 7, [], worker[:3]]).encode() if number % 2 else text.encode()
    stored |= {"busy": b"9" * 400, "beat": beat, "quiet": text.encode(), "rss": b"-5", "rtt_us": b"9" * 30}
    return stored | {"look": b"x", "concurrency": b"-1"}


def _works() -> Iterator[bytes]:
    yield from (b"", b"7", b"{}", b"\xff", b'{"queue":"default","run_at":1e999,"payload":{}}', _DEEP)
    yield b'{"queue":7,"run_at":"xhostile","payload":[]}'
    yield json.dumps({"queue": "default", "run_at": HUGE, "payload": "{"}).encode()


def job_text(raw: bytes) -> str:
    """The bytes of a job as other programs put them into JSON."""
    return raw.decode(errors="replace")


def _tracked(db: redis.Redis, keys: Keys, jobs: Sequence[bytes]) -> None:
    for number, jid in enumerate((*NAMES, b"megabyte", b"deep", b"twice")):
        text = TEXTS[number % len(TEXTS)].encode()
        state = (b"running", b"done", b"failed", text)[number % 4]
        status: dict[Any, Any] = {
            b"state": state,
            b"queue": text,
            b"attempt": b"9" * (40, 5_000)[number % 2],
            b"error": text,
            b"run:1": text,
        }
        status |= {b"progress": b'["%s",1e999,null]' % text[:20].replace(b'"', b""), b"started_at": b"inf"}
        status |= {
            b"finished_at": b"nan",
            b"job": jobs[number],
            b"error:1": b'["a"]',
            b"run:%d" % HUGE: b"[]",
        }
        db.hset(_named(keys, "pyworkers:job:", jid), mapping=status)
        db.xadd(_named(keys, "pyworkers:result:", jid), {"v": (text, b"[]", b"", _DEEP)[number % 4]})
        said = dict.fromkeys(("server", "queue", "state", "text", "problem"), TEXTS[number % len(TEXTS)])
        stack = {**said, "answered": True, "at": float("inf"), "pid": number, "rss_kb": HUGE, "peak_kb": -1}
        stacks = (json.dumps(stack).encode(), b"[]", _DEEP, text)
        db.set(_named(keys, "pyworkers:stack:", jid), stacks[number % 4])
        log = _named(keys, "pyworkers:log:", jid)
        deep = b'{"text":%s,"fields":[]}' % _DEEP
        for line in (text, b"{}", b'{"at":1e999,"text":7}', deep, b'{"state":"x"}'):
            db.xadd(log, {"v": line})
        db.xadd(log, {"other": text})
        db.hset(_named(keys, "it-", jid), mapping={"c": text, "ex": b"x", "rt": b"-1"})
    db.zadd(keys.cancelled, dict.fromkeys(NAMES, 1e300))
    _finished(db, keys, jobs)


def _finished(db: redis.Redis, keys: Keys, jobs: Sequence[bytes]) -> None:
    db.sadd(keys.finished, "server", "gone", *NAMES)
    for raw in (b"", b"[]", b'{"job":{}}', *(b'{"state":"done","job":%s}' % job for job in jobs)):
        db.xadd(keys.finished_jobs("server"), {"v": raw})
    db.xadd(keys.finished_jobs("server"), {"other": b"x"})
    db.set(_named(keys, "pyworkers:finished:", NAMES[0]), b"not a stream")


def _deploys(db: redis.Redis, keys: Keys) -> None:
    minutes = (time.gmtime(time.time() - 60 * back) for back in range(len(TEXTS)))
    for minute, text in zip(minutes, TEXTS, strict=True):
        key = keys.marks(time.strftime("%Y%m%d", minute))
        db.hset(key, mapping={time.strftime("%Y-%m-%dT%H:%M:00Z", minute): text, text: text})


def _batches(db: redis.Redis, keys: Keys) -> None:
    db.zadd(keys.batches, {name: time.time() + place for place, name in enumerate(NAMES)} | {b"gone": 1e300})
    for number, name in enumerate(NAMES):
        text = TEXTS[number % len(TEXTS)].encode()
        batch: dict[Any, Any] = {
            b"description": text,
            b"kind": text,
            b"parent": b"1 " + text,
            b"on_success": text,
            b"member:0": b"jid " + text,
            b"member:1": NAMES[number - 1],
            b"tags": b'["%b", 1]' % text.replace(b'"', b"") if number % 2 else text,
            b"inner": b"2",
            b"inner:1": name,
        }
        numbers = (b"5", b"0", b"x", b"9" * 400, b"-3", b"")[number % 6]
        batch |= dict.fromkeys((b"open", b"total", b"done"), numbers)
        batch |= dict.fromkeys((b"created_at", b"complete_at", b"death_at"), (b"1", b"inf", b"x")[number % 3])
        db.hset(_named(keys, "pyworkers:batch:", name), mapping=batch)
        db.sadd(_named(keys, "pyworkers:batch:", name + b":members"), *NAMES)
        db.sadd(_named(keys, "pyworkers:batch:", name + b":failed"), *NAMES[:3])
        db.sadd(_named(keys, "pyworkers:batch:", name + b":dead"), *NAMES[3:5])
        db.hset(_named(keys, "pyworkers:batch:", name + b":results"), mapping={"x": text})
    db.zadd(keys.batches, {"wrong-type": time.time()})
    db.set(keys.batch("wrong-type"), MARK)


def _locks_and_limits(db: redis.Redis, keys: Keys) -> None:
    for number, name in enumerate(NAMES):
        db.set(_named(keys, "pyworkers:unique:", name), name, px=(None, 3_600_000)[number % 2])
        db.sadd(keys.locks, b"unique:" + name)
        about = (b"5 0", b"10 1.5", b"x", b"999999999 9.9.9", b"0 0", b"1 60")[number % 6]
        db.hset(keys.limits, name, about)
        db.hset(keys.limits, b"queue/" + name, b"5 60")
        db.hset(keys.limits, b"running/" + name, b"5 0")
        db.zadd(_named(keys, "pyworkers:limit:", name), {name + b"|jid": 1e300, b"no holder": "-inf"})
        db.zadd(_named(keys, "pyworkers:limit-waiting:", name), {b"default " + name: "inf"})
    db.set(keys.unique("endless"), ENDLESS)
    db.lpush(keys.unique("wrong-type"), MARK)


def _cron(db: redis.Redis, keys: Keys) -> None:
    rows = []
    for number, name in enumerate(NAMES):
        text = TEXTS[number % len(TEXTS)]
        entry: dict[str, Any] = {
            "name": name.decode(errors="replace"),
            "schedule": "* * * * *",
            "queue": text,
            "class": text,
        }
        entry |= {"args": [text], "timezone": ("UTC", text)[number % 2], "misfire": "once", "grace": 300}
        definition = (json.dumps(entry).encode(), text.encode(), b"{}", _DEEP)[number % 4]
        db.hset(keys.cron_entries, name, definition)
        db.hset(keys.cron_last, name, (b"7", b"x", b"9" * 400)[number % 3])
        rows.append(entry | {"origin": text, "schedule": ("@every 5s", "0 0 30 2 *", text)[number % 3]})
        for field in (b"7 " + name, b"triggered", b"%d xhostile" % HUGE):
            run = {"state": text, "queue": text, "started_at": text, "finished_at": "inf", "error": text}
            stored = (json.dumps(run).encode(), text.encode(), b"[]")[number % 3]
            db.hset(_named(keys, "pyworkers:cron-runs:", name), field.decode("latin-1"), stored)
    db.sadd(keys.cron_paused, *NAMES[::2])
    db.hset(keys.owners, "server", "[]")
    db.set(keys.cron_declared("server"), json.dumps([*rows, 7, None, {}]))
    db.set(_named(keys, "pyworkers:cron-declared:", NAMES[0]), b"{")


def _counters(db: redis.Redis, keys: Keys) -> None:
    now = datetime.now(UTC)
    today = f"{now:%Y-%m-%d}"
    for name, value in (("processed", "9" * 400), ("failed", MARK), ("crashed", "-5"), ("expired", "1e9")):
        db.set(keys.stat(name), value)
        db.set(keys.stat(name, today), value)
    for moment in moments(now):
        for text in TEXTS:
            db.hset(
                keys.executions(moment), mapping={f"{text}|p": "9" * 18, f"{text}|f": "x", f"{text}|ms": ""}
            )
            db.hset(keys.executions(moment), mapping={text: "no metric", "|": "1", "a|b|c": "2"})
    minute = int(now.timestamp() // 60)
    for text in TEXTS:
        for field in (f"{text}|p", f"{text}|f", text, "|", "default|p"):
            db.hset(keys.runs(minute), field, "9" * 400)
        db.set(keys.own(f"durations:{text}:{minute // 60}"), MARK)
    waits = {"default": 9e14, **dict.fromkeys(TEXTS, 1e14), "odd": -1}
    gauges = {"busy": 9e14, "concurrency": 9e14, "waits": waits, "left_out": 1}
    db.xadd(keys.gauges(1), {"v": MARK}, id=f"{(minute - 1) * 60_000}-0")
    db.xadd(keys.gauges(1), {"v": json.dumps(gauges)}, id=f"{minute * 60_000}-0")
    db.xadd(keys.gauges(10), {"v": json.dumps({**gauges, "busy": MARK})}, id="1-1")
    for text in TEXTS[::2]:
        for moment in histogram_moments(text, now):
            db.set(keys.histogram(moment), MARK)


def _dashboards(db: redis.Redis, keys: Keys) -> None:
    for number, text in enumerate(TEXTS):
        action: dict[str, Any] = dict.fromkeys(("who", "source", "action", "target", "result"), text)
        action["at"] = HUGE * (number % 2)
        action["undo"] = text
        numbers = ("1.2.3 1 1 1", f"{time.time()} {HUGE} 1 1", f"{time.time()} 7 1 7", text)[number % 4]
        db.hset(keys.deletions, text, numbers)
        other = json.dumps({"who": 7, "at": text})
        db.lpush(keys.own("audit"), json.dumps(action), other, text, "[]", b"\xff")
        alarm = {"name": text, "when": text, "match": text, "to": [text, 7], "since": HUGE, "text": text}
        db.set(keys.alarming, json.dumps({"alarms": [alarm, alarm, text, {"to": text}]}))
        db.hset(keys.thresholds, f"{text} waiting", text if number % 2 else number)
        db.hset(keys.alarms, text, json.dumps({**alarm, "pending": text, "error": text}))
        db.lpush(keys.alarms_sent, json.dumps({"alarm": text, "at": text, "to": 7}), text, "[]", b"\xff")
        task = {"order": (json.dumps({"action": text}), text)[number % 2], "state": text, "seen": "9" * 400}
        db.hset(_named(keys, "pyworkers:web:task:", NAMES[number]), mapping=dict[Any, Any](task))
