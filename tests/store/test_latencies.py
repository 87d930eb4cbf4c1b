"""The latencies of queues: since when the next job waits, as each producer writes the time."""

from __future__ import annotations

import time

import pytest
import redis

from pyworkers.protocol.keys import Keys
from pyworkers.store import counters
from pyworkers.store.calls import run

ARGUMENT = '"args":[{"enqueued_at":"x"}]'


def latencies(url: str, namespace: str, *raws: str) -> dict[str, float]:
    """Those of one queue, by name, with these jobs, the next one last."""
    keys = Keys(namespace)
    with redis.Redis.from_url(url) as server:
        for raw in raws:
            server.rpush(keys.queue("q"), raw)
        return dict(run(server, counters.read(keys, ["q"])).latencies_s)


@pytest.mark.parametrize(
    "stored", ["{now}", " {now} ", "{whole}", '"{whole}"', "{ms}", '"2020-01-01T00:00:00Z"'], ids=str
)
def test_every_form_of_the_time(redis_url: str, namespace: str, stored: str) -> None:
    began = time.time()
    text = stored.format(now=began - 50, whole=int(began) - 50, ms=int((began - 50) * 1000))
    found = latencies(redis_url, namespace, "older", f'{{{ARGUMENT},"enqueued_at":{text},"queue":"q"}}')
    known = 50.0 if "{" in stored else began - 1_577_836_800
    assert abs(found["q"] - known) < 1 + time.time() - began


FAR = f'{{"enqueued_at":1,"args":["{"x" * 5000}"]}}'
UNKNOWN = ["", "junk", "{}", '{"enqueued_at":"}', '{"enqueued_at":null}', '{"enqueued_at":[1]}', FAR]


@pytest.mark.parametrize("raw", UNKNOWN, ids=["empty", "text", "none", "torn", "null", "list", "far"])
def test_an_unknown_time_is_no_number(redis_url: str, namespace: str, raw: str) -> None:
    assert latencies(redis_url, namespace, raw) == {}


def test_an_empty_queue_and_a_time_to_come_are_zero(redis_url: str, namespace: str) -> None:
    assert latencies(redis_url, namespace) == {"q": 0.0}
    assert latencies(redis_url, namespace, f'{{"enqueued_at":{time.time() + 1000}}}') == {"q": 0.0}
