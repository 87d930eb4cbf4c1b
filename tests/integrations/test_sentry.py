"""Sentry: what a server with real workers sends to a real endpoint, and what it does not send."""

from __future__ import annotations

import re
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk

from pyworkers import CallNext, Discard, Message, Outcome, PyworkersError, Snooze, Worker
from pyworkers.integrations.sentry import monitor_of, sentry_integration, slug_of
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.outcome import Fate
from pyworkers.testing import fake
from tests.helpers.processes import close_garbage
from tests.helpers.records import job
from tests.helpers.server_process import serving as serving_any
from tests.helpers.support import ROOT, wait_for
from tests.helpers.warm import SERVER
from tests.integrations.sentry_endpoint import Endpoint, Item, recording

# What the client of Sentry imports of the frameworks that are installed here: 0.7 s of CPU a server.
FRAMEWORKS = ("django", "fastapi", "flask", "redis", "sqlalchemy", "starlette")
serving = partial(
    serving_any,
    imports=(
        *SERVER,
        "pyworkers.integrations.sentry",
        *(f"sentry_sdk.integrations.{framework}" for framework in FRAMEWORKS),
    ),
)
PROGRAM = re.findall(r"```python\n(.*?)```", (ROOT / "contrib/docs/sentry.md").read_text(), re.DOTALL)[0]
CODE = """
import asyncio, sentry_sdk
from pyworkers.integrations.sentry import sentry_integration
INIT

@worker.job(queue="q", mode="MODE", concurrency=4, discard_on=(LookupError,))
ASYNC def run(how, secret="s3cret"):
    sentry_sdk.set_tag("own", how)
    sentry_sdk.add_breadcrumb(message=f"crumb of {how}")
    AWAIT
    if how == "crash":
        os._exit(9)
    if how == "hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, list(signal.Signals))
        time.sleep(60)
    if how == "done":
        sentry_sdk.capture_message("own message")
        return
    raise {"kill": Kill, "discard": Discard, "retry": Retry, "listed": KeyError}.get(how, ValueError)(how)
"""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with recording() as found:
        yield found


def code_of(endpoint: Endpoint, mode: str = "process", *, inherited: bool = False, **options: Any) -> str:
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    one_line = f"sentry_integration(worker, dsn={endpoint.dsn!r}{more})"
    # With an event, so that the client has a thread before the fork; it waits then, and holds no lock.
    before = f"sentry_sdk.init({endpoint.dsn!r})\nsentry_sdk.capture_message('import')\nsentry_sdk.flush(9)\n"
    before += f"sentry_integration(worker{more})"
    is_async = mode == "async"
    code = CODE.replace("INIT", before if inherited else one_line).replace("MODE", mode)
    code = code.replace("ASYNC ", "async " if is_async else "")
    return code.replace("AWAIT", "await asyncio.sleep(0.01)" if is_async else "pass")


def by_jid(events: list[Item]) -> dict[str, Item]:
    return {event["tags"]["pyworkers.jid"]: event for event in events}


def kind_of(event: Item) -> str:
    return str(event["exception"]["values"][-1]["type"])


def crumbs(event: Item) -> list[str]:
    return [crumb["message"] for crumb in event.get("breadcrumbs", {}).get("values", ())]


@pytest.mark.parametrize("mode", ["process", "async", "thread"])
def test_dead_jobs_are_events(
    tmp_path: Path, one_redis_url: str, namespace: str, endpoint: Endpoint, mode: str
) -> None:
    with serving(tmp_path, one_redis_url, namespace, code_of(endpoint, mode)) as server:
        server.push("q", job("r1", "run", "again", retry_count=0))
        for how in ("discard", "retry", "listed"):
            server.push("q", job(how, "run", how))
        for number in range(4):
            server.push("q", job(f"d{number}", "run", f"bad {number}", retry=0))
        server.push("q", job("k1", "run", "kill", retry_count=1), job("x1", "run", "bad x", retry=False))
        server.push("q", job("m1", "run", "done"))
        found = by_jid(endpoint.wait_for("event", 7))
        wait_for(lambda: server.settled("q"))
        # Its workers send what is left before they end.
        assert server.stop() == 0
        assert len(endpoint.items("event")) == 7
    assert found.keys() == {"d0", "d1", "d2", "d3", "k1", "x1", "m1"}
    assert found["m1"]["message"] == "own message"
    for number in range(4):
        event = found[f"d{number}"]
        tags = {name: value for name, value in event["tags"].items() if name.startswith(("pyworkers", "own"))}
        assert tags == {
            "pyworkers.jid": f"d{number}",
            "pyworkers.queue": "q",
            "pyworkers.class": "run",
            "pyworkers.attempt": "0",
            "own": f"bad {number}",
        }
        assert crumbs(event) == [f"crumb of bad {number}"]
        assert event["transaction"] == "run"
        assert "arguments" not in event["contexts"]["pyworkers"]
        frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
        assert frames[-1]["vars"]["how"] == f"'bad {number}'"
        assert not [frame for frame in frames if frame["module"].startswith("pyworkers.") and "vars" in frame]
    assert (kind_of(found["k1"]), found["k1"]["tags"]["pyworkers.attempt"]) == ("Kill", "2")


@pytest.mark.parametrize("mode", ["process", "async"])
def test_crashes_and_kills_are_events_of_the_client_that_was_inherited(
    tmp_path: Path, one_redis_url: str, namespace: str, endpoint: Endpoint, mode: str
) -> None:
    code = code_of(endpoint, mode, inherited=True, arguments=True)
    with serving(tmp_path, one_redis_url, namespace, code) as server:
        # One after the other: a process that is killed takes the events with it that it has not sent yet.
        endpoint.wait_for("event")
        server.push("q", job("c1", "run", "crash", retry=0, crash_count=2))
        endpoint.wait_for("event", 2)
        server.push("q", job("h1", "run", "hang", retry=0, timeout=0.2))
        endpoint.wait_for("event", 3)
        server.push("q", job("d1", "run", "bad", retry=0))
        endpoint.wait_for("event", 4)
        assert server.stop() == 0
        events = endpoint.items("event")
    assert [event["message"] for event in events if "message" in event] == ["import"]
    found = by_jid([event for event in events if "message" not in event])
    assert {jid: kind_of(event) for jid, event in found.items()} == {
        "c1": "WorkerLost",
        "h1": "JobTimeout",
        "d1": "ValueError",
    }
    assert found["c1"]["fingerprint"] == ["pyworkers", "WorkerLost", "run"]
    assert found["c1"]["contexts"]["pyworkers"]["arguments"] == ["crash"]
    assert "exited with status 9" in found["c1"]["exception"]["values"][-1]["value"]


def test_retries_are_events_if_they_are_wanted(
    tmp_path: Path, one_redis_url: str, namespace: str, endpoint: Endpoint
) -> None:
    with serving(tmp_path, one_redis_url, namespace, code_of(endpoint, retries=True)) as server:
        server.push("q", job("j1", "run", "bad"), job("j2", "run", "retry"), job("j3", "run", "bad", retry=0))
        found = by_jid(endpoint.wait_for("event", 2))
        assert server.stop() == 0
        assert len(endpoint.items("event")) == 2
    assert {jid: event["contexts"]["pyworkers"]["outcome"] for jid, event in found.items()} == {
        "j1": "retry",
        "j3": "dead",
    }


def test_what_a_worker_has_not_sent_is_sent_before_it_retires(
    tmp_path: Path, one_redis_url: str, namespace: str, endpoint: Endpoint
) -> None:
    code = code_of(endpoint)
    with serving(
        tmp_path, one_redis_url, namespace, code, PYWORKERS_SERVER__MAX_JOBS_PER_WORKER="1"
    ) as server:
        server.push("q", *(job(f"j{number}", "run", "bad", retry=0) for number in range(5)))
        found = endpoint.wait_for("event", 5)
        assert by_jid(found).keys() == {f"j{number}" for number in range(5)}
        wait_for(lambda: server.settled("q"))
        assert server.stop() == 0
        assert len(endpoint.items("event")) == 5


def test_cron_entries_are_monitors(
    tmp_path: Path, one_redis_url: str, namespace: str, endpoint: Endpoint
) -> None:
    code = f"""
import sentry_sdk
from pyworkers.integrations.sentry import sentry_integration
sentry_integration(worker, dsn={endpoint.dsn!r})

@worker.cron("0 3 * * mon", timezone="Europe/Berlin")
@worker.job(queue="q", retry_in=lambda failures, error, message: 0.1)
def nightly(how="good"):
    if how == "crash":
        sentry_sdk.flush(60)
        os._exit(9)
    if how == "bad" or (how == "second" and not current_message().attempt):
        raise ValueError(how)
"""
    with serving(tmp_path, one_redis_url, namespace, code) as server:
        slot = {"name": "nightly", "slot": 1}
        server.push("q", job("good", "nightly", cron=slot))
        server.push("q", job("second", "nightly", "second", cron=slot))
        server.push("q", job("bad", "nightly", "bad", cron=slot, retry=0))
        server.push("q", job("crash", "nightly", "crash", cron=slot, crash_count=2))
        for number, about in enumerate(({"name": "other"}, {**slot, "triggered": True}, "text", None)):
            server.push("q", job(f"none{number}", "nightly", cron=about))
        found = endpoint.wait_for("check_in", 8)
        wait_for(lambda: server.settled("q"))
        wait_for(lambda: len(server.zset("dead")) == 2)
        assert server.stop() == 0
        assert len(endpoint.items("check_in")) == 8
    ways: dict[str, list[str]] = {}
    for item in found:
        ways.setdefault(item["check_in_id"], []).append(item["status"])
        assert item["monitor_slug"] == "nightly"
        assert item["monitor_config"] == {
            "schedule": {"type": "crontab", "value": "0 3 * * mon"},
            "timezone": "Europe/Berlin",
        }
    assert sorted(map(sorted, ways.values())) == [["error", "in_progress"]] * 2 + [["in_progress", "ok"]] * 2


def test_a_job_continues_a_trace(
    tmp_path: Path, one_redis_url: str, namespace: str, endpoint: Endpoint
) -> None:
    trace = "0123456789abcdef0123456789abcdef"
    headers = {"sentry-trace": f"{trace}-0123456789abcdef-1", "baggage": 7}
    with serving(tmp_path, one_redis_url, namespace, code_of(endpoint, traces=True)) as server:
        for number, field in enumerate((headers, "text", {"sentry-trace": "wrong"}, None)):
            server.push("q", job(f"d{number}", "run", "bad", retry=0, trace_propagation_headers=field))
        found = by_jid(endpoint.wait_for("event", 4))
    assert {jid: event["contexts"]["trace"]["trace_id"] == trace for jid, event in found.items()} == {
        "d0": True,
        "d1": False,
        "d2": False,
        "d3": False,
    }


def test_the_program_of_the_page(
    tmp_path: Path, one_redis_url: str, namespace: str, endpoint: Endpoint
) -> None:
    with serving(tmp_path, one_redis_url, namespace, PROGRAM, SENTRY_DSN=endpoint.dsn) as server:
        server.push("default", job("j1", "charge", 7))
        [event] = endpoint.wait_for("event")
    assert (event["tags"]["pyworkers.jid"], kind_of(event)) == ("j1", "ConnectionError")


@pytest.mark.fault("E2")
@pytest.mark.parametrize("state", ["silent", "refusing"])
def test_a_sentry_that_does_not_answer_delays_no_job(
    tmp_path: Path, one_redis_url: str, namespace: str, state: str
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if state == "silent":
            listener.listen()
        absent = Endpoint()
        absent.served_at(listener.getsockname()[1])
        with serving(tmp_path, one_redis_url, namespace, code_of(absent)) as server:
            # Were one sent before its job ends, ten jobs of a worker would take minutes.
            server.push("q", *(job(f"j{number}", "run", "bad", retry=0) for number in range(40)))
            wait_for(lambda: len(server.zset("dead")) == 40)
            assert server.stop() == 0


def test_in_a_test_the_client_of_the_test_counts() -> None:
    events: list[Any] = []
    worker = Worker()
    sentry_integration(worker, dsn="http://key@127.0.0.1:1/2")

    @worker.job(retry=0)
    def fail() -> None:
        raise ValueError("bad")

    def keep(event: Any, _hint: Any) -> None:
        events.append(event)

    with initialized(before_send=keep), fake() as queue:
        fail.enqueue()
        with pytest.raises(ValueError, match="bad"):
            queue.drain()
    assert [kind_of(event) for event in events] == ["ValueError"]


def test_an_enqueue_call_writes_the_headers_of_its_trace() -> None:
    worker, seen = Worker(), list[str]()
    sentry_integration(worker, traces=True)
    job = worker.job(name="job")(lambda: seen.append(sentry_sdk.get_traceparent() or ""))
    with initialized(traces_sample_rate=1.0, before_send_transaction=lambda *_: None), fake() as queue:
        with sentry_sdk.start_transaction(name="request") as request:
            job.enqueue()
        headers = queue.jobs[0].data["trace_propagation_headers"]
        assert headers["sentry-trace"].startswith(request.trace_id)
        assert f"sentry-trace_id={request.trace_id}" in headers["baggage"]
        queue.drain()
    assert [parent.partition("-")[0] for parent in seen] == [request.trace_id]


@contextmanager
def initialized(**options: Any) -> Iterator[None]:
    """A client for the process of the test, which sends nothing."""
    with sentry_sdk.isolation_scope():
        sentry_sdk.init("http://key@127.0.0.1:1/1", **options)
        try:
            yield
        finally:
            sentry_sdk.get_client().close(0)
            sentry_sdk.get_global_scope().set_client(None)


@pytest.mark.parametrize(
    ("schedule", "found"),
    [
        ("*/5 * * * *", {"type": "crontab", "value": "*/5 * * * *"}),
        ("@daily", {"type": "crontab", "value": "0 0 * * *"}),
        ("0  9-17 * JAN mon-fri", {"type": "crontab", "value": "0 9-17 * jan mon-fri"}),
        ("every 5m", {"type": "interval", "value": 5, "unit": "minute"}),
        ("every 120s", {"type": "interval", "value": 2, "unit": "minute"}),
        ("every 48h", {"type": "interval", "value": 2, "unit": "day"}),
        ("every 1s", None),
        ("every 90s", None),
        ("* * * * * 30", None),
        ("0 0 l * *", None),
        ("0 0 * * fri#2", None),
    ],
)
def test_a_schedule_that_sentry_does_not_know_is_no_monitor(schedule: str, found: object) -> None:
    config = monitor_of(CronEntry("n", schedule, "q", "C"))
    assert (config and config["schedule"]) == found


def test_slugs() -> None:
    assert slug_of("Nightly Sweep/é") == "nightly-sweep"
    assert slug_of("é") == "cron"
    assert len(slug_of("x" * 99)) == 50


def test_it_is_declared_once() -> None:
    worker = Worker()
    sentry_integration(worker)
    with pytest.raises(PyworkersError, match="reports to Sentry already"):
        sentry_integration(worker)


def test_cron_entries_of_other_scripts_have_a_monitor_each() -> None:
    names = ["отчёт", "чистка", "clean up", "clean-up", "nightly"]
    slugs = [slug_of(name, names) for name in names]
    assert len(set(slugs)) == len(names)
    assert slugs[-1] == "nightly"
    assert all(re.fullmatch(r"[a-z0-9_-]{1,50}", slug) for slug in slugs)


def test_jobs_that_raise_one_exception_object_report_their_own_run() -> None:
    events: list[Any] = []
    worker, shared = Worker(), ValueError("shared")
    sentry_integration(worker, dsn="http://key@127.0.0.1:1/2")

    @worker.job(retry=0)
    async def fail(name: str) -> None:
        sentry_sdk.add_breadcrumb(message=name)
        raise shared

    def keep(event: Any, _hint: Any) -> None:
        events.append(event)

    with initialized(before_send=keep), fake() as queue:
        for name in ("one", "two"):
            fail.enqueue(name)
            with pytest.raises(ValueError, match="shared"):
                queue.drain()
    assert [crumbs(event) for event in events] == [["one"], ["two"]]
    for event, name in zip(events, ("one", "two"), strict=True):
        frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
        assert [frame["vars"]["name"] for frame in frames if frame["function"] == "fail"] == [repr(name)]


def test_what_another_link_turns_into_a_success_is_released_with_its_job() -> None:
    class NoRowError(Exception):
        """Can be referred to weakly, as exceptions written in Python can."""

    raised: list[weakref.ref[BaseException]] = []
    worker = Worker()

    @worker.middleware
    def forgive(message: Message, call_next: CallNext) -> Outcome:
        try:
            return call_next(message)
        except NoRowError:
            return Outcome(Fate.DONE)

    sentry_integration(worker, dsn="http://key@127.0.0.1:1/2")

    @worker.job(retry=0)
    def fail() -> None:
        error = NoRowError()
        raised.append(weakref.ref(error))
        raise error

    with initialized(), fake() as queue:
        fail.enqueue()
        queue.drain()
        close_garbage()
    assert [reference() for reference in raised] == [None]


def test_a_choice_of_the_job_is_no_error_in_traces() -> None:
    transactions: list[Any] = []
    worker = Worker()
    sentry_integration(worker, traces=True, dsn="http://key@127.0.0.1:1/2")

    @worker.job(discard_on=(LookupError,))
    def run(how: str) -> None:
        raise {
            "snooze": Snooze(5), "discard": Discard("no"), "group": ExceptionGroup("tasks", [Snooze(5)]),
            "listed": KeyError(), "bad": ValueError(),
        }[how]  # fmt: skip

    def keep(event: Any, _hint: Any) -> None:
        transactions.append(event)

    with initialized(before_send_transaction=keep, traces_sample_rate=1.0), fake() as queue:
        for how in ("snooze", "discard", "group", "listed", "bad"):
            run.enqueue(how)
            with suppress(Exception):
                queue.drain()
            queue.clear()
    found = [event["contexts"]["trace"].get("status") for event in transactions]
    assert found == ["ok", "ok", "ok", "ok", "internal_error"]


def test_an_sdk_that_raises_changes_nothing() -> None:
    worker = Worker()
    sentry_integration(worker, traces=True, dsn="http://key@127.0.0.1:1/2")
    ran: list[int] = []
    worker.job(name="run")(ran.append)

    def sampler(_: Any) -> float:
        raise RuntimeError("of the sampler")

    with initialized(traces_sampler=sampler), fake() as queue:
        worker.enqueue("default", "run", [1])
        queue.drain()
    assert ran == [1]
