"""Faults of payloads. Rows P1, P2, P4, P5 and P7 are proved in tests/system/test_fates.py."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.faults.fleet import Fleet
from tests.helpers.support import wait_for


def put(fleet: Fleet, jid: str, **fields: Any) -> bytes:
    """Push an envelope as a foreign producer does."""
    raw = json.dumps({"class": "work", "args": [], "jid": jid} | fields).encode()
    fleet.redis.lpush(fleet.keys.queue("q"), raw)
    fleet.ledger.note("enqueued", jid)
    return raw


@pytest.mark.fault("P3")
@pytest.mark.lengthy
@pytest.mark.timeout(150)
def test_p3_fifty_megabytes_run_and_delay_no_other_job(fleet: Fleet) -> None:
    server = fleet.server(concurrency=2)
    put(fleet, "large", args=[0.0, 1], padding="x" * 50_000_000)
    for number in range(20):
        put(fleet, f"small{number}")
    fleet.wait_for_notes(20, "end")
    # It fails at first, so that its bytes come back and are written again.
    fleet.wait_for_notes(1, "end", "large")
    fleet.rest()
    assert server.events("redis.down") == []
    assert server.events("worker.lost") == []
    fleet.stop()
    fleet.check()


@pytest.mark.fault("P3")
@pytest.mark.lengthy
def test_p3_beyond_the_limit_a_payload_goes_to_dead_as_it_is(fleet: Fleet) -> None:
    fleet.server(concurrency=1)
    with fleet.redis.pipeline() as pipe:
        # 130 MiB, made where it lies.
        pipe.lpush(
            fleet.keys.queue("q"),
            b'{"class":"work","args":[],"jid":"huge","x":"' + b"x" * (130 << 20) + b'"}',
        )
        pipe.execute()
    put(fleet, "small")
    fleet.wait_for_notes(1, "end", "small")
    wait_for(lambda: fleet.redis.zcard(fleet.keys.dead), message="it is dead")
    fleet.rest()
    [failed] = fleet.events("job.failed")
    assert failed["error_class"] == "BadMessageError"
    fleet.redis.delete(fleet.keys.dead)
    fleet.stop()
    fleet.check()


ODD_RETRIES: list[tuple[Any, str]] = [
    # the job's ``retry``, and what becomes of it when it fails for the first time
    ("true", "retry"),
    ("5", "retry"),
    ("0", "dead"),
    ("-1", "retry"),
    ("many", "retry"),
    (-1, "dead"),
    (2.5, "retry"),
    ([], "retry"),
    ({}, "retry"),
    (10**30, "retry"),
]


@pytest.mark.fault("P6")
def test_p6_odd_fields_are_read_by_a_table_and_nothing_spins(fleet: Fleet) -> None:
    server = fleet.server()
    for number, (retry, _) in enumerate(ODD_RETRIES):
        put(fleet, f"retry{number}", args=[0.0, 99], retry=retry, backtrace="yes", retry_queue=7)
    # A count is at most 100,000, which is also the most retries that a job can have.
    odd_counts = {"3": "retry", "x": "retry", -5: "retry", 1e300: "dead", True: "retry", 2.0: "retry"}
    for number, count in enumerate(odd_counts):
        put(fleet, f"count{number}", args=[0.0, 10**9], retry_count=count, retry=10**9, failed_at="soon")
    jids = [note.jid for note in fleet.ledger.notes("enqueued")]
    places = {}
    for jid in jids:
        server.wait_for_event("job.failed", jid=jid)
        places[jid] = server.events("job.failed", jid=jid)[0]["outcome"]
    assert [places[f"retry{number}"] for number in range(len(ODD_RETRIES))] == [to for _, to in ODD_RETRIES]
    assert [places[f"count{number}"] for number in range(len(odd_counts))] == [*odd_counts.values()]
    server.stop()


@pytest.mark.fault("P6")
def test_p6_odd_scores_are_moved_once_or_wait(fleet: Fleet) -> None:
    def member(jid: str, **fields: Any) -> str:
        fleet.ledger.note("enqueued", jid)
        return json.dumps({"class": "work", "args": [], "jid": jid, "queue": "q"} | fields)

    scores: dict[str, float | str] = {"-inf": "-inf", "negative": -1e18, "zero": 0, "tiny": 5e-324, "ms": 1.0}
    later: dict[str, float | str] = {"9999": 253402300799, "ms9999": 253402300799000, "inf": "inf"}
    server = fleet.server()
    for jid, score in (scores | later).items():
        fleet.redis.zadd(fleet.keys.schedule, {member(jid, at="9999-12-31T23:59:59Z"): score})
    for jid in scores:
        fleet.wait_for_notes(1, "end", jid)
    before = _cpu_s(server.pid)
    time.sleep(1.5)
    # The far future is slept through, not looked at all the time.
    assert _cpu_s(server.pid) - before < 0.75
    assert fleet.redis.zcard(fleet.keys.schedule) == len(later)
    fleet.stop()
    fleet.check()


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
