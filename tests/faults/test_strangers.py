"""What other programs write into the keys of a server: other types, odd bytes and numbers in each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, ResponseError

from pyworkers.protocol.keys import Keys
from pyworkers.store.acl import Role
from tests.helpers.acl import url_of
from tests.helpers.replies import as_list
from tests.helpers.server_process import ServerProcess, serving

CODE = """
slots = worker.limit("slots", concurrency=2)
rate = worker.limit("rate", rate=50, per=1.0)

@worker.cron("every 1s")
@worker.job(queue="q")
def tick():
    note("tick", 0)

@worker.job(queue="q", retry=1, track=60)
def fails(number):
    raise ValueError(number)

def job(name, **options):
    worker.job(name=name, **options)(lambda number: note(name, number))

@worker.job(queue="q")
def long(number):
    at = checkpoint(0)
    at.save(at.value and 1)
    note("long", number)

job("plain", queue="plain")
job("limited", queue="lim", limits=[slots, rate])
job("ordered", queue="ord")
job("capped", queue="capped")
job("unique", queue="q")
"""
QUEUES = """
[queues.plain]
[queues.q]
concurrency = 4
[queues.lim]
[queues.ord]
ordered = true
[queues.capped]
max_running = 3
rate = "3/1s"
"""
ODD = [
    b"", b"\xff\xed\xa0\x80", b"9" * 5000, b"9" * 5000 + b" 1", b"nan", b"-inf", b"1e400", b"[" * 2000,
    b'{"a":"\\ud800"}', b'["\\ud800",7,null,{}]', b'["plain","q"]', b"999999999999", b"5 abc",
    b"other:1:abcdef",
    b'{"name":"\\ud800","schedule":"every 1s","queue":"q","class":"tick"}',
    b'{"name":"n1","schedule":"* * * * *","queue":"q","class":"tick","args":[]}',
]  # fmt: skip
SCORES = [float("inf"), float("-inf"), 0, 1e308, -1e308, 1e17, 0.5, 5e-324]
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("plain", {}),
    "limited": ("lim", {}),
    "ordered": ("ord", {}),
    "capped": ("capped", {}),
    "unique": ("q", {"unique_key": "k", "unique_for": 60, "track": 60, "history": True}),
    "long": ("q", {"batch": "b" * 24, "batch_index": 0, "track": 60}),
    "fails": ("q", {"batch": "c" * 24, "then": [{"queue": "q", "class": "tick", "args": []}]}),
}
TYPES = ["hash", "zset", "string", "list", "set", "stream"]


class Stranger:
    """Writes into the keys of one server, by ``redis``.

    With all rights, except the lists of jobs in progress and of the queue ``plain``.
    """

    def __init__(self, server: ServerProcess, redis: Redis | None = None) -> None:
        self.redis: Redis = redis or server.redis
        self._is_client = redis is not None
        self._all = server.redis
        self.keys: Keys = server.keys
        [identity] = as_list(self._all.hkeys(self.keys.owners))
        self.fields: dict[bytes, list[bytes]] = {}
        self.types: dict[bytes, str] = dict(self._kinds(identity.decode()))
        self.identity = identity
        self.core = {name.encode() for name in (self.keys.owners, self.keys.queues)}

    def _kinds(self, me: str) -> Any:
        keys = self.keys
        for kind, names in {
            "hash": [keys.cron_entries, keys.cron_last, keys.suspects, keys.ordered("ord"), keys.limits,
                     keys.sweep("missing"), keys.iteration("j"), keys.batch("b" * 24)],
            "zset": [keys.cancelled, keys.batches, keys.awaited, keys.schedule, keys.retry, keys.dead,
                     keys.limit("slots"), keys.limit("rate"), keys.limit_waiting("slots"),
                     keys.limit_waiting("rate"), keys.limit("queue:capped")],
            "set": [keys.cron_paused, keys.locks, keys.processes, keys.paused],
            "list": [keys.signals(me)],
            "string": [keys.cron_version, keys.watched, keys.process_cleanup, keys.leader, keys.sweep("turn"),
                       keys.turn(keys.schedule), keys.turn(keys.retry), keys.tombstone(me)],
        }.items():  # fmt: skip
            yield from ((name.encode(), kind) for name in names)

    def learn(self) -> None:
        """Note the keys that exist by now, with their types and fields."""
        for name in self._all.scan_iter(f"{self.keys.namespace}*", count=1000):
            is_safe = not name.endswith(b":inprogress") and name != self.keys.queue("plain").encode()
            if self._is_client or is_safe:
                found: Any = self._all.type(name)
                kind = self.types.setdefault(name, found.decode())
                if kind == "hash" and name not in self.fields:
                    self.fields[name] = as_list(self._all.hkeys(name)) if found == b"hash" else []

    def write(self, turn: int, kind: str, *, core: bool = False) -> int:
        """Replace each key, by a value of this type, or of its own: ``own``; the number of successes."""
        with self.redis.pipeline(transaction=False) as pipeline:
            for name, own in self.types.items():
                if core or name not in self.core:
                    pipeline.delete(name)
                    self._put(pipeline, name, own if kind == "own" else kind, turn)
            replies = pipeline.execute(raise_on_error=False)
        return sum(not isinstance(reply, Exception) for reply in replies)

    def _put(self, redis: Any, name: bytes, kind: str, turn: int) -> None:
        values = [ODD[(place + turn) % len(ODD)] for place in range(len(ODD))]
        if kind == "hash":
            known = [self.identity, b"identity", b"fence", b"until", b"head", b"tick", b"n1"]
            fields = dict.fromkeys([*known, *ODD, *self.fields.get(name, [])])
            redis.hset(name, mapping={f: values[place % len(values)] for place, f in enumerate(fields)})
        elif kind == "zset":
            scores = {value: SCORES[(place + turn) % len(SCORES)] for place, value in enumerate(ODD)}
            redis.zadd(name, scores)
        elif kind == "string":
            redis.set(name, values[len(name) % len(values)])
        elif kind == "stream":
            redis.xadd(name, {b"\xff": b"\xff", b"result": values[0]})
        else:
            add: Callable[..., Any] = redis.sadd
            if kind == "list":
                add = redis.lpush if self._is_client else redis.rpush
            add(name, *(value for value in values if not value.startswith(b'{"name')))

    def clear(self) -> None:
        """Delete what was written."""
        self.learn()
        self.redis.delete(*self.types)


def push_all(server: ServerProcess, number: int) -> None:
    for name, (queue, fields) in JOBS.items():
        about = {"class": name, "args": [number], "jid": f"{name}{number}", "queue": queue, "retry": 1}
        try:
            server.push(queue, about | fields)
        except ResponseError:
            assert name != "plain"


@pytest.mark.fault("P11")
def test_the_keys_of_a_server_hold_odd_values_of_each_type(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    (tmp_path / "workers.toml").write_text(QUEUES)
    options = ("--config", "workers.toml")
    with serving(tmp_path, one_redis_url, namespace, CODE, *options, PYWORKERS_SERVER__LEASE="3") as server:
        stranger = Stranger(server)
        push_all(server, 0)
        server.wait_for_notes(1, "plain", 0)
        rounds = [*(("own", False) for _ in range(5)), *((kind, False) for kind in TYPES), ("own", True)]
        for number, (kind, core) in enumerate(rounds, 1):
            stranger.learn()
            stranger.write(3 * number, kind, core=core)
            push_all(server, number)
            if not core:
                # The jobs of another queue run.
                server.wait_for_notes(1, "plain", number)
        stranger.clear()
        assert server.events("server.failed") == []
        last = len(rounds) + 1
        push_all(server, last)
        for name in JOBS.keys() - {"fails"}:
            server.wait_for_notes(1, name, last)
        ticks = len(server.wait_for_notes(0, "tick"))
        server.wait_for_notes(ticks + 1, "tick")
        assert server.stop() == 0
        assert server.events("server.failed") == []


@pytest.mark.fault("P11")
def test_a_client_stops_nothing(tmp_path: Path, one_redis_url: str, namespace: str) -> None:
    url = url_of(one_redis_url, Role.CLIENT, namespace)
    (tmp_path / "workers.toml").write_text(QUEUES)
    with (
        Redis.from_url(url) as client,
        serving(tmp_path, one_redis_url, namespace, CODE, "--config", "workers.toml") as server,
    ):
        stranger, written = Stranger(server, client), 0
        for number, kind in enumerate(("own", "hash", "list", "set"), 1):
            push_all(server, number)
            stranger.learn()
            written += stranger.write(3 * number, kind, core=True)
            for name in JOBS.keys() - {"fails"}:
                server.wait_for_notes(1, name, number)
        assert written > 20
        ticks = len(server.wait_for_notes(0, "tick"))
        server.wait_for_notes(ticks + 1, "tick")
        assert server.stop() == 0
        assert server.events("server.failed") == []
