"""``pyworkers.api`` alongside Sidekiq's own API: the same actions, and both on the same jobs at once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from pyworkers import Client
from pyworkers.api import DeadSet, JobSet, ProcessSet, RetrySet, ScheduledSet, WorkSet
from pyworkers.cli import main
from tests.helpers.replies import as_list
from tests.helpers.support import PATIENCE_S, wait_for
from tests.interop.programs import Ruby, sidekiq

SETS: dict[str, type[JobSet]] = {"retry": RetrySet, "schedule": ScheduledSet, "dead": DeadSet}
FAILED = {
    "class": "Note", "args": [1, "ä</&", 10**30, 1.5], "queue": "mail", "jid": "j", "retry": True,
    "created_at": 1795225197.5, "enqueued_at": 1795225198.5, "error_class": "E", "error_message": "m",
    "failed_at": 1795225199.5, "tags": ["t"], "other": {"a": None},
}  # fmt: skip


def payload(**changes: Any) -> bytes:
    text = json.dumps(FAILED | changes, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def everything(db: redis.Redis) -> dict[str, Any]:
    """All jobs by place, but for the times of this minute; Redis is empty afterwards."""
    found: dict[str, Any] = {"queues": db.smembers("queues")}
    for name in sorted(as_list(db.keys("queue:*"))):
        found[name.decode()] = [json.loads(raw) for raw in as_list(db.lrange(name, 0, -1))]
    for key in SETS:
        found[key] = [json.loads(raw) for raw in as_list(db.zrange(key, 0, -1))]
    for job in found.get("queue:mail", []):
        assert job.pop("enqueued_at") > FAILED["enqueued_at"]
    db.flushall()
    return found


@pytest.mark.parametrize("count", [None, 0, 3])
@pytest.mark.parametrize("action", ["retry", "add_to_queue", "kill", "delete"])
@pytest.mark.parametrize("zset", list(SETS))
def test_an_action_does_what_sidekiqs_does(
    ruby: Ruby, url: str, db: redis.Redis, zset: str, action: str, count: int | None
) -> None:
    raw = payload() if count is None else payload(retry_count=count)
    results = []
    for act in (lambda: ruby.call("act", zset, "j", action), lambda: _act(url, zset, action)):
        db.zadd(zset, {raw: 1895225197.5})
        act()
        results.append(everything(db))
    assert results[0] == results[1]


def _act(url: str, zset: str, action: str) -> None:
    job = SETS[zset](url).find_job("j")
    assert job is not None
    assert getattr(job, action)()


@pytest.mark.parametrize("action", ["retry", "kill"])
def test_both_act_on_all_jobs_at_once_and_each_job_is_moved_once(
    ruby: Ruby, url: str, db: redis.Redis, action: str
) -> None:
    db.zadd("retry", {payload(jid=f"{n:04}"): 1895225197.5 + n // 2 for n in range(1500)})
    began = threading.Event()
    by_us: list[bool] = []

    def one_by_one() -> None:
        for job in RetrySet(url):
            by_us.append(getattr(job, action)())
            began.set()
            if len(by_us) == 100:
                # Until Sidekiq has moved one: by then, we might have moved all.
                wait_for(lambda: db.zcard("retry") < 1500 - sum(by_us), PATIENCE_S, "both move some")

    ours = threading.Thread(target=one_by_one)
    ours.start()
    assert began.wait(PATIENCE_S)
    ruby.call("act_on_all", "retry", action)
    ours.join()
    raws = db.lrange("queue:mail", 0, -1) if action == "retry" else db.zrange("dead", 0, -1)
    assert sorted(json.loads(raw)["jid"] for raw in as_list(raws)) == [f"{n:04}" for n in range(1500)]
    assert db.zcard("retry") == 0
    assert 0 < sum(by_us) < 1500, "both moved some"


def test_a_sidekiq_process_is_shown_and_told_to_be_quiet_and_to_stop(
    sidekiq_installed: None, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    db.lpush("queue:ruby", payload(**{"class": "Wait", "args": [str(gate)], "queue": "ruby"}))
    with sidekiq(tmp_path / "sidekiq", url, "ruby") as peer:
        work = wait_for(lambda: WorkSet(url).find_work("j"), PATIENCE_S, "the running job is listed")
        [process] = ProcessSet(url)
        assert (work.identity, work.queue, work.job_class) == (process.identity, "ruby", "Wait")
        assert (process.queues, process.busy, process.stopping) == (("ruby",), 1, False)
        assert process.about.pid > 0
        process.quiet()
        wait_for(lambda: next(iter(ProcessSet(url))).stopping, PATIENCE_S, "quiet")
        gate.touch()
        process.stop()
        assert peer.process.wait(PATIENCE_S) == 0
    assert list(ProcessSet(url)) == []
    assert list(WorkSet(url)) == []


def test_a_job_that_sidekiq_runs_is_said_to_run_there(
    ruby: Ruby, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    jid = Client(url).enqueue("ruby", "Wait", [str(gate)])
    with sidekiq(tmp_path / "ruby", url, "ruby") as peer:
        peer.ran(1, jid=jid)
        work = wait_for(lambda: WorkSet(url).find_work(jid), PATIENCE_S, "Sidekiq has said what it runs")
        result = CliRunner().invoke(main, ["cancel", jid, "--url", url])
        assert result.exit_code == 1
        assert result.stdout.startswith(f"{jid}: running in {work.identity}, thread {work.thread}: ")
        # This Sidekiq has no iterable jobs: no program would delete the key.
        assert not db.exists(f"it-{jid}")
        gate.touch()
        wait_for(lambda: db.get("stat:processed") == b"1", PATIENCE_S, "it ran to its end")
