"""The attack: ``make soak MODE=attack SECONDS=3600 SEED=7``.

Three servers of each mode on one Redis, and a stranger with the rights of a client of ``pyworkers acl``. It
pushes random payloads, and writes odd values into all keys that it may write. Each minute and at the end,
every server is the process that it was, each payload is in one place or has ended, and other jobs run.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import redis

from pyworkers.store.acl import Role
from tests.faults.fleet import Fleet, Server
from tests.helpers.acl import url_of
from tests.helpers.replies import as_list
from tests.helpers.support import stretched

VICTIM = "tests.faults.victim:worker"
MODES = ("process", "async", "thread")
QUEUES = ("any", "ordered", "capped", "jobs")
CLASSES = {
    "echo": 40, "raise": 12, "cancel": 4, "discard": 4, "snooze": 4, "unknown": 2, "hang": 0.5, "exit": 1,
    "vanish": 0.5, "crash": 0.5,
}  # fmt: skip
ENDS = {
    "job.timeout",
    "job.done",
    "job.cancelled",
    "job.expired",
    "job.discarded",
    "job.skipped",
    "job.failed",
}
# In this time, a job of a queue runs that the stranger leaves alone.
WITHIN_S = 10.0
ROUND_S = 60.0
PACE_S = 0.05
FIELDS = [
    "batch", "batch_index", "then", "fill", "unique_key", "unique_until", "unique_for", "unique_token",
    "track", "history", "expiry", "limits", "limited", "tags", "retry", "retry_for", "retry_count",
    "retry_queue",
    "crash_count", "misfits", "dead", "backtrace", "encrypted", "cron", "queue", "jid", "class", "args",
    "created_at", "enqueued_at", "failed_at", "retried_at", "error_message", "error_class", "error_backtrace",
    "timeout", "log_context", "iteration", "pyworkers_iteration", "locale", "cattr", "wrapped", "lock_ttl",
]  # fmt: skip
ODD = [
    b'"%s"' % (b"b" * 24), b'"%s"' % (b"c" * 24), b'"x:y"', b'""', b'"\\ud800"', b'"\\udc80\\u0000"',
    b'"\xff\xfe"', b'"\xed\xa0\x80"', b'"' + b"x" * 70_000 + b'"', b"NaN", b"Infinity",
    b"-Infinity", b"1e400", b"-1", b"0", b"-0.0", b"5e-324", b"1e308", b"9" * 400, b"9" * 5000,
    b"18446744073709551616", b"true",
    b"null", b"[]", b"[[]]", b"{}", b"[" * 90 + b"]" * 90, b"[" * 3000 + b"]" * 3000, b"[" * 60_000,
    b'{"a":' * 500 + b"1" + b"}" * 500, b'{"a":1,"a":"\\ud800"}', b'{"\\ud800":"\\ud800"}', b'{"":""}',
    b'{"name":"\\ud800","slot":' + b"9" * 30 + b"}", b'{"name":"x","slot":true}', b'["\\ud800",7,null,{}]',
    b'[{"queue":"process-any","class":"\\ud800","args":["\\ud800"],"created_at":1e400}]',
    b'[{"queue":"\\ud800"},7,null]', b'[[{"queue":"async-any","args":7}],"\\ud800"]', b"01",
    b"+1", b"'x'", b"",
    b'[{"queue":"thread-any","class":"echo","args":[{"pyworkers":"RESULT"}]}]',
    b'{"RESULT":[[0,"x"],["\\ud800"]]}',
    b'" %s"' % (b"c" * 24), b'"0 %s"' % (b"b" * 24), b'"group"', b'"chain"', b'"ignore"', b'"999999999999"',
    b'"process-any {}"', b'"thread-any 0,1 {}"', b'"m"', b'"start"',
    b'"2026-01-01T00:00:00Z"', b'"nan"', b'"1e999"', b'"\\u0661"', b'" 1 "', b'"1_0"',
]  # fmt: skip
# Of the hash of a batch, and of the status of a job.
FACTS = [
    "open", "total", "done", "dead", "gone", "deleted", "kind", "size", "if_missing", "parent", "day",
    "answer",
    "on_success", "on_complete", "on_death", "success_at", "death_at", "state", "job", "run:0", "error:0",
]  # fmt: skip
BROKEN = [b"", b"\0", b"\xff", b"{", b"[1]", b"7", b'"\\ud800"', b"\xef\xbb\xbf", b"nul", b"[" * 100_000]
TOKEN = re.compile(rb'"token":"(t\d+)"')
CONFIG = """
[queues.MODE-capped]
max_running = 3
rate = "50/1s"
"""
SCORES = ["inf", "-inf", "0", "1e308", "-1e308", "1e17", "0.5", "5e-324", "1", "1795225197"]


class Stranger:
    """Writes as a client may. ``random`` alone decides what; ``sent`` are the tokens of its payloads."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self._fleet, self._keys, self._rng = fleet, fleet.keys, rng
        self._redis: Any = redis.Redis.from_url(url_of(fleet.url, Role.CLIENT, fleet.namespace))
        self._lists = [fleet.keys.queue(f"{mode}-{name}") for mode in MODES for name in QUEUES]
        self.sent: set[str] = set()
        self.unnamed: set[str] = set()
        self.refused = 0

    def learn(self) -> None:
        """The lists of jobs in progress, into which a client may push, too."""
        found = self._fleet.redis.scan_iter(f"{self._fleet.namespace}queue:*:inprogress")
        self._lists = [*self._lists[: len(MODES) * len(QUEUES)], *sorted(key.decode() for key in found)]

    def act(self) -> None:
        """Write one thing."""
        kind = self._rng.random()
        try:
            if kind < 0.75:
                self._push()
            elif kind < 0.82:
                self._schedule()
            else:
                self._scribble()
        except redis.ResponseError:
            self.refused += 1

    def _push(self) -> None:
        usual = self._lists[: len(MODES) * len(QUEUES)]
        names = usual if self._rng.random() < 0.97 else [*self._lists, self._keys.queue("\x00\x7f:é")]
        token, raw = self._payload()
        self._redis.lpush(self._rng.choice(names), raw)
        self.sent.add(token)

    def _schedule(self) -> None:
        token, raw = self._payload()
        score = self._rng.choice([*SCORES, str(time.time() + 2 * self._rng.random())])
        self._redis.zadd(self._keys.schedule, {raw: score})
        self.sent.add(token)

    def _payload(self) -> tuple[str, bytes]:
        rng = self._rng
        token = f"t{len(self.sent):07}"
        [job_class] = rng.choices([*CLASSES], [*CLASSES.values()])
        fields: dict[str, bytes] = {
            "class": json.dumps(job_class).encode(),
            "args": b'[1,"x"]' if rng.random() < 0.2 else b"[1]",
            "jid": f'"{token}"'.encode(),
            "retry": rng.choice([b"0", b"1", b"2", b"true", b"false"]),
            "queue": f'"{rng.choice(MODES)}-{rng.choice(QUEUES)}"'.encode(),
        }
        if rng.random() < 0.4:
            fields |= {"batch": f'"{"b" * 24}"'.encode(), "batch_index": b"0", "track": b"60"}
        if rng.random() < 0.3:
            fields |= {"unique_key": b'"k"', "history": b"true", "unique_for": b"60"}
        if rng.random() < 0.3:
            fields["then"] = b'[{"queue":"process-any","class":"echo","args":[]}]'
        if rng.random() < 0.05:
            fields["expiry"] = b"1"
        pairs = [*fields.items()]
        if rng.random() < 0.7:
            odd = {rng.choice(FIELDS): rng.choice(ODD) for _ in range(rng.choice([1, 1, 2, 3, len(FIELDS)]))}
            if rng.random() < 0.1:
                pairs += odd.items()
            else:
                pairs = [*(fields | odd).items()]
            if odd.keys() & {"jid", "class", "expiry", "retry", "dead", "wrapped"}:
                self.unnamed.add(token)
        if token in self.unnamed:
            # It would end without a run, and the log would name it by another id.
            pairs = [pair for pair in pairs if pair[0] != "expiry"]
        text = b",".join(b'"%s":%s' % (name.encode(), value) for name, value in pairs)
        raw = b'{%s,"token":"%s"}' % (text, token.encode())
        if rng.random() < 0.05:
            raw = rng.choice([rng.choice(BROKEN) + raw, raw + rng.choice(BROKEN), raw[1:], raw[:-1]])
        if rng.random() < 0.003:
            raw = raw[:-1] + b',"padding":"' + b"x" * rng.choice([1_000_000, 20_000_000]) + b'"}'
        return token, raw

    def _value(self) -> bytes:
        return self._rng.choice(ODD).strip(b'"')

    def _scribble(self) -> None:
        keys, rng, pick = self._keys, self._rng, self._rng.choice
        recent = f"t{rng.randrange(max(1, len(self.sent) - 50), len(self.sent) + 2):07}"
        batch = keys.batch(pick(["b", "c"]) * 24)
        mapping = {pick([pick(FACTS).encode(), self._value()]): self._value() for _ in range(8)}
        writes: list[tuple[Any, ...]] = [
            ("SADD", keys.queues, self._value()),
            ("LPUSH", keys.queue("odd"), self._value()),
            ("ZADD", keys.schedule, pick(SCORES), self._value()),
            ("ZADD", keys.batches, pick(SCORES), pick([b"b" * 24, self._value()])),
            ("ZADD", keys.awaited, pick(SCORES), pick([recent.encode(), self._value()])),
            ("EXPIRE", keys.awaited, pick([1, 60])),
            ("SADD", keys.locks, pick([b"k", self._value()])),
            ("SET", keys.unique("k"), self._value()),
            ("DEL", keys.unique("k")),
            *(("HSET", name, *sum(mapping.items(), ())) for name in (batch, keys.job(recent))),
            *(("HSET", batch + pick([":jobs", ":members", ":results"]), *sum(mapping.items(), ()))
              for _ in range(2)),
            ("SADD", batch + pick([":jobs", ":members", ":pending", ":missing"]), self._value()),
            ("RPUSH", batch + pick([":results", ":then", ":callbacks"]), self._value()),
            ("HSET", batch, "open", 1, "total", 2, "done", 0, "parent", b" " + pick([b"b", b"c"]) * 24),
            ("SADD", batch + pick([":dead", ":failed", ":members"]), pick([b"b", b"c"]) * 24),
            ("SADD", batch + ":members", recent),
            ("RPUSH", batch, self._value()),
            ("SADD", batch, self._value()),
            ("DEL", batch),
            ("HINCRBY", batch, pick(FACTS), 2**62),
            ("EXPIRE", pick([batch, keys.job(recent)]), pick([1, 60])),
            ("XADD", keys.result(recent), "*", pick([b"result", self._value()]), self._value()),
        ]  # fmt: skip
        self._redis.execute_command(*pick(writes))


class Watch:
    """What became of the payloads, and of the servers."""

    def __init__(self, fleet: Fleet, stranger: Stranger) -> None:
        self._fleet, self._stranger = fleet, stranger
        self._pids = {server.name: server.pid for server in fleet.servers}
        self._read: Counter[str] = Counter()
        self._ended: set[str] = set()
        self._probes = 0
        self.events: Counter[str] = Counter()
        self.places: Counter[str] = Counter()

    def check(self) -> None:
        """Raise AssertionError with what does not hold."""
        self._alive()
        deadline = time.monotonic() + stretched(WITHIN_S)
        while (lost := self._lost()) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert not lost, f"in no place, and not ended: {lost[:50]}"
        self._dead_are_forgotten()
        for mode in MODES:
            self._probe(f"{mode}-plain")
        self._alive()
        sent = len(self._stranger.sent)
        print(f"{sent} payloads, {len(self._ended)} ended, {dict(self.places)}", flush=True)

    def _alive(self) -> None:
        self._read_logs()
        assert self._pids == {server.name: server.pid for server in self._fleet.servers}
        assert not [server.name for server in self._fleet.servers if server.exited], "a server has ended"
        assert not self.events["server.failed"], "server.failed"

    def _probe(self, queue: str) -> None:
        self._probes += 1
        jid = f"probe{self._probes}"
        self._fleet.client.enqueue(queue, "echo", [1], extra={"token": jid})
        self._fleet.wait_for_notes(1, "end", jid, timeout=stretched(WITHIN_S))

    def _lost(self) -> list[str]:
        """The payloads that are nowhere and have not ended. Raises AssertionError for one in two places."""
        found = self._snapshot()
        self.places = Counter(name for names in found.values() for name in names)
        twice = {token: names for token, names in found.items() if len(names) > 1}
        assert not twice, f"in several places: {twice}"
        self._read_logs()
        self._ended |= {note.jid for note in self._fleet.ledger.notes("end")}
        # An end that the log names by another id: it has run at least.
        self._ended |= {note.jid for note in self._fleet.ledger.notes("start")} & self._stranger.unnamed
        return sorted(self._stranger.sent - found.keys() - self._ended)

    def _snapshot(self) -> dict[str, list[str]]:
        """By token, the kinds of places of each payload, all at one moment."""
        keys, own = self._fleet.keys, self._fleet.redis
        lists = sorted(own.scan_iter(f"{keys.namespace}queue:*", count=1000))
        with own.pipeline() as pipe:
            for name in lists:
                pipe.lrange(name, 0, -1)
            for name in (keys.schedule, keys.retry, keys.dead):
                pipe.zrange(name, 0, -1)
            read = pipe.execute()
        kinds = ["inprogress" if name.endswith(b":inprogress") else "queue" for name in lists]
        found: dict[str, list[str]] = {}
        for kind, members in zip([*kinds, "schedule", "retry", "dead"], read, strict=True):
            for member in members:
                if token := TOKEN.search(member):
                    found.setdefault(token[1].decode(), []).append(kind)
        return found

    def _dead_are_forgotten(self) -> None:
        """So that the set is not cut to its length, which would end some."""
        for member in as_list(self._fleet.redis.zrange(self._fleet.keys.dead, 0, -1)):
            if token := TOKEN.search(member):
                self._ended.add(token[1].decode())
            self._fleet.redis.zrem(self._fleet.keys.dead, member)

    def _read_logs(self) -> None:
        for server in self._fleet.servers:
            for event in self._news(server):
                self.events[event["event"]] += 1
                if event["event"] in ENDS and event.get("outcome") not in ("retry", "dead"):
                    self._ended.add(str(event.get("jid")))

    def _news(self, server: Server) -> Iterator[dict[str, Any]]:
        with (server.folder / "log").open("rb") as log:
            log.seek(self._read[server.name])
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self._read[server.name] += len(line)
                if line.startswith(b"{"):
                    yield json.loads(line)


def attack(fleet: Fleet, seconds: float, seed: int) -> Counter[str]:
    """Run it; the numbers of payloads and log events. Raises AssertionError with what does not hold."""
    for mode in MODES:
        for _ in range(3):
            server = fleet.server(config=CONFIG.replace("MODE", mode), start=False, FAULTS_MODE=mode)
            server.start(app=VICTIM)
    stranger = Stranger(fleet, random.Random(seed))
    watch = Watch(fleet, stranger)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        stranger.learn()
        check_at = min(end, time.monotonic() + ROUND_S)
        while time.monotonic() < check_at:
            stranger.act()
            time.sleep(PACE_S)
        watch.check()
    fleet.stop()
    watch.events["payloads"] = len(stranger.sent)
    watch.events["refused"] = stranger.refused
    return watch.events
