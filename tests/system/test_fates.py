"""What becomes of jobs, in every dialect, through the real server: done, retried, dead, dropped, put off."""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from pyworkers import Client
from tests.helpers.records import job
from tests.helpers.replies import as_list
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import stretched, wait_for

CODE = """
@worker.process("go", concurrency=2)
def handle(message):
    note("go", message.jid, message.job_class, message.args, message.enqueued_at)
    if message.job_class == "Fail":
        raise ValueError("go failed")

@worker.job(queue="mail", concurrency=2)
def ok(*args):
    note("ok", *args)

@worker.job(queue="mail")
def fail(*args):
    raise ValueError("fäiled\\ud800")

@worker.job(queue="mail", retry=2, retry_in=lambda count, error, message: 0.2)
def flaky(key):
    attempt = current_message().attempt
    note("flaky", key, attempt)
    if attempt < 2:
        raise ConnectionError(f"attempt {attempt}")

@worker.job(queue="mail", retry=0, timeout=0.2)
def once(how):
    if how == "raise":
        raise ValueError(how)
    signal.pthread_sigmask(signal.SIG_BLOCK, list(signal.Signals))
    time.sleep(60)

@worker.job(queue="mail")
def choose(how):
    note("choose", how)
    if how == "snoozed":
        if current_message().data.get("seen"):
            return
        raise Snooze(0.3)
    raise {"discard": Discard("no"), "kill": Kill("yes"), "retry": Retry(delay=50)}[how]

@worker.on_exhausted
def gone(message, error):
    note("gone", message.jid, type(error).__name__)
"""


@pytest.fixture
def server(serve_either: Serve) -> Iterator[ServerProcess]:
    with serve_either(CODE) as running:
        yield running


def job_of(job_class: str, *args: Any, **fields: Any) -> dict[str, Any]:
    return job(f"jid-{job_class}", job_class, *args, **fields)


def one(server: ServerProcess, zset: str) -> tuple[dict[str, Any], float]:
    """The only member of a set, as an envelope with its score."""
    [(member, score)] = wait_for(lambda: server.zset(zset), message=f"a job in {zset}")
    return json.loads(member), score


# What each program writes: times as float seconds, milliseconds and text; args of any kind.
DIALECTS = [
    b'{"retry":true,"queue":"go","class":"Add","args":[1],"jid":"s6","enqueued_at":1795225197.5}',
    b'{"retry":true,"queue":"go","class":"Add","args":[1],"jid":"s8","enqueued_at":1795225197500}',
    b'{"queue":"go","class":"Add","args":[1],"jid":"g1","enqueued_at":1795225197.5,"at":1795225197.5}',
    b'{"queue":"ns:go","class":"Add","args":[1],"jid":"g2","enqueued_at":1.7952251975e9,"retry_max":3}',
    b'{"queue":"go","class":"Add","args":1,"jid":"g3","enqueued_at":"2026-11-21 01:39:57.500000+00:00"}',
    b'{"class":"ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper","wrapped":"Add","jid":"aj",'
    b'"args":[{"job_class":"Add","arguments":[1]}],"enqueued_at":1795225197.5}',
]


@pytest.mark.fault("P7")
def test_every_dialect_is_read(server: ServerProcess) -> None:
    server.push("go", *DIALECTS)
    read = {jid: about for _, _, jid, *about in server.wait_for_notes(len(DIALECTS), "go")}
    assert read == {json.loads(envelope)["jid"]: ["Add", [1], 1795225197.5] for envelope in DIALECTS}
    wait_for(lambda: server.settled("go", "mail"), message="settled")


FATES = [
    (job_of("fail", retry=True), "retry"),
    (job_of("fail", retry=1), "retry"),
    (job_of("fail", retry="3"), "retry"),
    (job_of("fail"), "retry"),
    (job_of("fail", retry=None), "retry"),
    (job_of("fail", retry=0), "dead"),
    (job_of("fail", retry=0, dead=False), None),
    (job_of("fail", retry=False), None),
    (job_of("fail", retry=3, retry_count=2, failed_at=1.5), "dead"),
    (job_of("fail", retry=3, retry_count="2", failed_at=1.5), "dead"),
    (job_of("fail", retry=True, retry_max=0), "dead"),
    (job_of("fail", retry=True, retry_for=10, failed_at=1.5), "dead"),
    (job_of("choose", "kill"), "dead"),
    (job_of("choose", "kill", retry=False), "dead"),
    (job_of("choose", "retry"), "retry"),
]


@pytest.mark.fault("P4")
@pytest.mark.fault("P6")
def test_a_failed_job_goes_where_its_envelope_says(server: ServerProcess) -> None:
    jobs = {f"{number}: {envelope}": envelope for number, (envelope, _) in enumerate(FATES)}
    expected = dict(zip(jobs, (place for _, place in FATES), strict=True))
    server.push("mail", *(envelope | {"jid": jid} for jid, envelope in jobs.items()))
    server.wait_for_event("job.failed", count=len(jobs))
    wait_for(lambda: server.settled("go", "mail"), message="settled")
    outcomes = {event["jid"]: event["outcome"] for event in server.events("job.failed")}
    assert outcomes == {jid: place or "discard" for jid, place in expected.items()}
    kept = [(name, member) for name in ("retry", "dead", "schedule") for member, _ in server.zset(name)]
    found = [(json.loads(member)["jid"], name) for name, member in kept]
    assert sorted(found) == sorted((jid, place) for jid, place in expected.items() if place)
    server.stop()
    counts = server.redis.mget(server.keys.stat("processed"), server.keys.stat("failed"))
    assert counts == [b"%d" % len(jobs)] * 2
    gone = [note[2] for note in server.ledger() if note[1] == "gone"]
    assert sorted(gone) == sorted(jid for jid, place in expected.items() if place != "retry")


# What a deploy leaves: a class or a parameter that this server does not know.
MISFITS = [
    job_of("Unknown"),
    job_of("Unknown", retry=0),
    job_of("Unknown", retry=False, dead=False),
    job_of("choose", retry=False),
    job_of("choose", "snoozed", "more", retry=0, dead=False),
]
LATE = {"misfits": 20, "misfit_at": 1_795_225_197.5, "failed_at": 1_795_225_197.5}


@pytest.mark.fault("P4")
def test_a_job_that_does_not_fit_goes_back_for_another_server(server: ServerProcess) -> None:
    before = time.time()
    for number, envelope in enumerate(MISFITS):
        server.push("mail", envelope | {"jid": f"m{number}"}, envelope | LATE | {"jid": f"late{number}"})
    server.wait_for_event("job.misfit", count=len(MISFITS))
    server.wait_for_event("job.failed", count=len(MISFITS), outcome="dead")
    wait_for(lambda: server.settled("go", "mail"), message="settled")
    # On a busy machine, they are due again by now, and come back to the same place.
    waiting = [f"m{number}" for number in range(len(MISFITS))]
    wait_for(lambda: sorted(json.loads(raw)["jid"] for raw, _ in server.zset("retry")) == waiting)
    retries = [event["retry_at"] for event in server.events("job.misfit")]
    assert all(before + 5 <= at <= time.time() + 15 for at in retries)
    dead = {job["jid"]: job["misfits"] for job in (json.loads(raw) for raw, _ in server.zset("dead"))}
    assert dead == {f"late{number}": 21 for number in range(len(MISFITS))}
    server.stop()
    keys = server.keys
    counts = server.redis.mget(keys.stat("misfits"), keys.stat("processed"), keys.stat("failed"))
    misfits = len(server.events("job.misfit")) + len(dead)
    assert counts == [b"%d" % misfits, b"5", b"5"]
    assert sorted(note[2] for note in server.ledger() if note[1] == "gone") == sorted(dead)


def test_a_job_of_a_bare_client_is_tried_as_often_as_its_handler_says(
    server: ServerProcess, redis_url: str, namespace: str
) -> None:
    with Client(redis_url, namespace=namespace) as client:
        once = client.enqueue("mail", "once", ["raise"])
        server.wait_for_event("job.failed", jid=once, outcome="dead")
        crashed = client.enqueue("mail", "once", ["hang"])
        server.wait_for_event("job.timeout", jid=crashed, outcome="dead")
        again = client.enqueue("mail", "fail", [])
        server.wait_for_event("job.failed", jid=again, outcome="retry")
    wait_for(lambda: server.settled("go", "mail"), message="settled")
    assert [len(server.zset(name)) for name in ("retry", "dead")] == [1, 2]
    assert all(b'"retry":' not in raw for raw, _ in server.zset("dead"))


def test_a_discarded_job_is_no_error(server: ServerProcess) -> None:
    server.push("mail", job_of("choose", "discard"))
    event = server.wait_for_event("job.discarded")
    assert event["level"] == "info"
    wait_for(lambda: server.settled("go", "mail"), message="settled")
    assert server.events("job.failed") == []
    assert [server.zset(name) for name in ("retry", "dead", "schedule")] == [[], [], []]


def test_a_job_without_a_class_is_dead_at_once(server: ServerProcess) -> None:
    server.push("mail", b"{}", b'{"class":null,"args":[1],"retry":true}')
    server.wait_for_event("job.failed", count=2, outcome="dead")
    errors = [event["error"] for event in server.events("job.failed")]
    assert errors == ["a job of the queue 'mail' has no class"] * 2
    wait_for(lambda: server.settled("go", "mail"), message="settled")
    assert [len(server.zset(name)) for name in ("retry", "dead")] == [0, 2]


def test_a_process_handler_without_retry_keeps_its_failed_job_in_dead(server: ServerProcess) -> None:
    before = time.time()
    server.push("go", job_of("Fail", 1))
    dead, score = one(server, "dead")
    assert (dead["error_class"], dead["error_message"], dead["queue"]) == ("ValueError", "go failed", "go")
    assert before <= score <= time.time()


def test_the_error_is_written_as_sidekiq_writes_it(server: ServerProcess) -> None:
    before = time.time()
    server.push("mail", job_of("fail", "x" * 10, retry=5))
    first, score = one(server, "retry")
    assert (first["retry_count"], first["error_class"], first["error_message"]) == (
        0,
        "ValueError",
        "fäiled?",
    )
    assert before <= first["failed_at"] <= time.time()
    assert "retried_at" not in first
    assert 15 <= score - first["failed_at"] < 25
    lines = json.loads(zlib.decompress(base64.b64decode(first["error_backtrace"], validate=True)))
    assert [line.rpartition(":in ")[2] for line in lines] == ["fail"]

    server.redis.delete(server.keys.retry)
    server.push("mail", first)
    second, score = one(server, "retry")
    assert (second["retry_count"], second["failed_at"]) == (1, first["failed_at"])
    assert 16 <= score - second["retried_at"] < 36


def test_what_is_written_back_keeps_the_text_of_every_other_field(server: ServerProcess) -> None:
    unknown = (
        b'"big":123456789012345678901234567890,"dec":1.50,"exp":1e3,"u":"\\u003c","o":{"b": 1,"a" : [ ]}'
    )
    server.push("mail", b'{"class":"fail",%s,"args":[0.10],"jid":"j"}' % unknown)
    [(member, _)] = wait_for(lambda: server.zset("retry"), message="a retry")
    assert member.startswith(b'{"class":"fail",%s,"args":[0.10],"jid":"j","queue":"mail",' % unknown)


NO_JOBS = [
    b"", b" ", b"{", b"[]", b"1", b"null", b'"text"', b"not json", b"\xff\xfe", b'{"class":"ok"}garbage',
    b'[{"class":"ok"}]', b'{"a":' * 100_000,
    b'{"class":"ok","args":[' + b"9" * 5000 + b"]}", b'{"class":"ok","args":[NaN]}',
    b'{"class":"ok\x00"}',
]  # fmt: skip


@pytest.mark.fault("P1")
@pytest.mark.fault("P2")
def test_bytes_that_are_no_job_go_to_dead_as_they_are(server: ServerProcess) -> None:
    after = [job_of("ok", number) for number in range(len(NO_JOBS))]
    # A job behind each: none of them stops the queue or its worker.
    raws = [raw for bad, good in zip(NO_JOBS, after, strict=True) for raw in (bad, json.dumps(good).encode())]
    server.push("mail", *raws)
    server.wait_for_notes(len(after), "ok")
    wait_for(lambda: server.settled("go", "mail"), message="settled")
    assert sorted(member for member, _ in server.zset("dead")) == sorted(NO_JOBS)
    events = server.events("job.failed")
    assert len(events) == len(NO_JOBS)
    assert {(event["outcome"], event["error_class"]) for event in events} == {("dead", "BadMessageError")}
    assert all(len(event["error"]) > 5 for event in events)
    assert server.events("worker.lost") == []


REASONS = {
    b'{"class":5,"args":[],"jid":"x", "n":1.50}': "'class' is not a string but int",
    b'{"jid": 7,"class":"ok","queue":"mail"}': "'jid' is not a string but int",
    b'{"class":"Sidekiq::ActiveJob::Wrapper","args":[]}': "an ActiveJob wrapper without its job",
}


def test_an_object_that_is_no_job_stands_in_dead_with_the_reason(server: ServerProcess) -> None:
    before = time.time()
    server.push("mail", *REASONS)
    wait_for(lambda: len(server.zset("dead")) == len(REASONS), message="they are dead")
    members = [member for member, _ in server.zset("dead")]
    for raw, reason in REASONS.items():
        [member] = [member for member in members if member.startswith(raw[:-1] + b",")]
        fields = json.loads(member)
        assert fields.keys() - json.loads(raw).keys() <= {
            "error_class", "error_message", "failed_at", "queue",
        }  # fmt: skip
        assert (fields["error_class"], fields["error_message"]) == ("BadMessageError", reason)
        assert fields["queue"] == "mail"
        assert before <= fields["failed_at"] <= time.time()
    errors = [event["error"] for event in server.events("job.failed")]
    assert sorted(errors) == sorted(REASONS.values())


@pytest.mark.fault("P2")
def test_odd_numbers_and_keys_run(server: ServerProcess) -> None:
    server.push(
        "mail", b'{"class":"ok","args":[1e400, 12345678901234567890, "\\u00e9"],"class":"ok","extra":{"":1}}'
    )
    [[_, _, infinite, big, text]] = server.wait_for_notes(1, "ok")
    assert (infinite, big, text) == (float("inf"), 12345678901234567890, "é")


@pytest.mark.fault("P5")
def test_a_job_without_an_id_gets_one_and_keeps_it(server: ServerProcess) -> None:
    server.push("mail", {"class": "fail", "args": []})
    retried, _ = one(server, "retry")
    assert len(retried["jid"]) == 24


@pytest.mark.fault("P5")
def test_equal_payloads_are_settled_one_by_one(server: ServerProcess) -> None:
    twin = json.dumps(job_of("ok", 1)).encode()
    server.push("mail", *[twin] * 5)
    server.wait_for_notes(5, "ok", 1)
    wait_for(lambda: server.settled("go", "mail"), message="settled")
    assert server.stop() == 0
    assert server.redis.get(server.keys.stat("processed")) == b"5"


def test_a_failed_job_runs_again_at_its_time_until_it_succeeds(server: ServerProcess) -> None:
    server.push("mail", job_of("flaky", "k"))
    notes = server.wait_for_notes(3, "flaky", "k")
    assert [note[-1] for note in notes] == [0, 1, 2]
    wait_for(lambda: server.settled("go", "mail", sets=["retry"]), message="settled")
    assert [event["attempt"] for event in server.events("job.done")] == [2]


def test_a_snoozed_job_is_scheduled_and_not_counted(server: ServerProcess) -> None:
    before = time.time()
    server.push("mail", job_of("choose", "snoozed"))
    scheduled, score = one(server, "schedule")
    assert "retry_count" not in scheduled
    assert before + 0.3 <= score <= time.time() + 0.3
    server.wait_for_notes(2, "choose", "snoozed")
    assert server.events("job.failed") == []


def test_a_retry_goes_to_its_retry_queue(server: ServerProcess) -> None:
    server.push("mail", job_of("fail", retry_queue="slow"))
    retried, _ = one(server, "retry")
    assert retried["queue"] == "slow"


def test_a_scheduled_job_runs_at_its_time(server: ServerProcess) -> None:
    at = time.time() + 1.2
    server.redis.zadd(server.keys.schedule, {json.dumps(job_of("ok", "later", queue="mail", at=at)): at})
    server.wait_for_notes(1, "ok", "later")
    assert 0 <= time.time() - at < stretched(1)
    wait_for(lambda: not server.zset("schedule"), message="promoted")


def test_scheduled_bytes_that_are_no_job_are_buried(server: ServerProcess) -> None:
    member = json.dumps(job_of("ok", "fine", queue="mail"))
    bad = {"no job": 1.0, '{"queue":5}': 2.0, '{"queue":"\\ud800"}': 2.5, '{"queue":"a b"}': 2.7}
    server.redis.zadd(server.keys.schedule, bad | {member: 3.0})
    server.wait_for_notes(1, "ok", "fine")
    buried = [raw.decode() for raw, _ in server.zset("dead")]
    assert {raw.partition(',"error_message":')[0].removesuffix("}") for raw in buried} == {
        raw.removesuffix("}") for raw in bad
    }
    errors = [json.loads(raw)["error_class"] for raw in buried if raw != "no job"]
    assert errors == ["BadMessageError"] * 3


def test_a_hundred_scheduled_jobs_keep_the_text_of_every_field(server: ServerProcess) -> None:
    members = {b'{"class":"Gone","queue":"x","args":[1.50,%d],"jid":"%d"}' % (n, n): 1.0 for n in range(100)}
    server.redis.zadd(server.keys.schedule, members)
    wait_for(lambda: server.waiting("x") == 100, message="promoted")
    found = as_list(server.redis.lrange(server.keys.queue("x"), 0, -1))
    assert {raw.partition(b',"enqueued_at":')[0] + b"}" for raw in found} == set(members)
