"""Faults of one of several Redis servers: the others are not disturbed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.store import leases
from pyworkers.store.admin import Admin
from tests.helpers.endpoint import Endpoint
from tests.helpers.redises import OwnRedis
from tests.helpers.replies import as_list
from tests.helpers.server_process import ServerProcess
from tests.helpers.support import wait_for

ARCHIVE = Keys("old:")
APP = """
@worker.job(queue="mail", retry=False)
def mail(*words):
    work(*words)
@worker.job(queue="reports", retry=False)
def report(*words):
    work(*words)
def work(*words):
    note("start", current_message().jid)
    try:
        if words:
            wait_for_file(words[0])
    except Interrupted:
        note("cut", current_message().jid)
        raise
    note("end", current_message().jid)
@worker.job(queue="mail", fenced=True)
def strict_mail(*words):
    work(*words)
@worker.job(queue="reports", fenced=True)
def strict_report(*words):
    work(*words)
@worker.job(queue="mail")
def both():
    mail.enqueue()
    report.enqueue()
"""


class Pair:
    """A server on two Redis servers: the queue ``mail`` is on the default one, ``reports`` on ``archive``."""

    def __init__(self, folder: Path, binary: str) -> None:
        self.default = OwnRedis(binary, folder / "redis")
        self.archive = OwnRedis(binary, folder / "archive")
        self.endpoint = Endpoint()
        self.file = folder / "workers.toml"
        self.text = f"""
[redis]
url = "{self.default.url}"
[redis.archive]
url = "{self.archive.url}"
namespace = "old:"
[queues.mail]
concurrency = 2
[queues.reports]
concurrency = 2
redis = "archive"
[server]
lease = 2
[http]
bind = "{self.endpoint.bind}"
"""
        self.file.write_text(self.text)
        self.server = ServerProcess(folder, self.default.url, "", "--config", str(self.file))
        self.server.write_app(APP)
        self.enqueued: list[str] = []

    def reload(self, text: str) -> None:
        """Write another configuration, and send HUP."""
        self.server.clear_log()
        self.file.write_text(text)
        self.server.signal(signal.SIGHUP)

    def push(self, redis: OwnRedis, queue: str, job_class: str, *args: str) -> str:
        """Push as another program does."""
        jid = os.urandom(12).hex()
        job = {"class": job_class, "queue": queue, "args": args, "jid": jid, "retry": False}
        keys = Keys("") if redis is self.default else ARCHIVE
        with redis.client() as client:
            client.lpush(keys.queue(queue), json.dumps(job))
        self.enqueued.append(jid)
        return jid

    def mail(self, *args: str) -> str:
        """A job on the default Redis."""
        return self.push(self.default, "mail", "mail", *args)

    def report(self, *args: str) -> str:
        """A job on the other one."""
        return self.push(self.archive, "reports", "report", *args)

    def noted(self, word: str) -> list[str]:
        """The ids of the jobs that noted this, in their order."""
        return [jid for _, said, jid in self.server.ledger() if said == word]

    def wait_for(self, word: str, *jids: str) -> None:
        """Wait until these jobs have noted this."""

        def have() -> bool:
            return set(jids) <= set(self.noted(word))

        try:
            wait_for(have)
        except AssertionError:
            missing = set(jids) - set(self.noted(word))
            raise AssertionError(f"{word}: {missing} missing; the log:\n{self.server.log_text()}") from None

    def readyz(self) -> tuple[int, dict[str, Any]]:
        """The status and the page."""
        status, text = self.endpoint.get("/readyz")
        return status, json.loads(text)


@pytest.fixture
def pair(tmp_path: Path, one_binary: str) -> Iterator[Pair]:
    """Both Redis servers run; the server does not yet."""
    found = Pair(tmp_path, one_binary)
    with ExitStack() as stack:
        stack.enter_context(found.default).start()
        stack.enter_context(found.archive).start()
        stack.callback(found.server.kill)
        yield found


@contextmanager
def away(redis: OwnRedis, way: str) -> Iterator[None]:
    """Kill it and start it again after the block, or freeze it for the block."""
    if way == "frozen":
        with redis.stopped():
            yield
    else:
        redis.kill()
        yield
        redis.start()


@pytest.mark.fault("N1")
@pytest.mark.parametrize("way", ["killed", "frozen"])
def test_n1_one_redis_is_away_under_load_and_the_other_works_on(pair: Pair, way: str) -> None:
    pair.server.start()
    first = [pair.report("go"), *(pair.report() for _ in range(20))]
    pair.wait_for("start", first[0])
    with away(pair.archive, way):
        meanwhile = [pair.mail() for _ in range(50)]
        pair.wait_for("end", *meanwhile)
        wait_for(lambda: not pair.readyz()[1]["redis_servers"]["archive"], message="readiness names it")
        status, page = pair.readyz()
        assert (status, page["redis_servers"]) == (200, {"default": True, "archive": False})
        assert page["failing"].keys() == {"reports"}
        pair.server.let_go("go")
        more = [pair.mail() for _ in range(20)]
        pair.wait_for("end", *more)
    last = [pair.report() for _ in range(10)]
    pair.wait_for("end", *pair.enqueued)
    wait_for(lambda: pair.readyz() == (200, _ALL_READY), message="all is ready again")
    assert pair.server.stop() == 0
    ends = pair.noted("end")
    assert sorted(ends) == sorted({*first, *meanwhile, *more, *last})
    assert {event["redis"] for event in pair.server.events("redis.down")} <= {"archive"}
    with pair.archive.client() as client:
        assert client.keys("old:queue:*") == []


_ALL_READY = {
    "fetching": True,
    "lease": True,
    "redis": True,
    "redis_servers": {"default": True, "archive": True},
}


def test_a_job_enqueues_where_the_queue_is(pair: Pair) -> None:
    pair.server.start()
    pair.push(pair.default, "mail", "both")
    wait_for(lambda: len(pair.noted("end")) == 2, message="a job at each Redis")
    assert pair.server.stop() == 0
    ended = {(line["queue"], line["redis"]) for line in pair.server.events() if line["event"] == "job.done"}
    assert ended == {("mail", "default"), ("reports", "archive")}
    with pair.default.client() as default, pair.archive.client() as archive:
        assert (default.get("stat:processed"), archive.get("old:stat:processed")) == (b"2", b"1")


@pytest.mark.fault("N2")
@pytest.mark.parametrize("absent", ["default", "archive"])
def test_n2_one_redis_is_absent_at_the_start_and_the_other_works(pair: Pair, absent: str) -> None:
    missing: OwnRedis = getattr(pair, absent)
    push = {"default": pair.report, "archive": pair.mail}[absent]
    missing.kill()
    pair.server.start()
    pair.wait_for("end", push())
    status, page = pair.readyz()
    assert (status, page["redis_servers"][absent]) == (200, False)
    # A reload in the meantime counts for it as well.
    pair.server.signal(signal.SIGHUP)
    pair.server.wait_for_event("reload.done")
    missing.start()
    jids = [pair.mail(), pair.report()]
    pair.wait_for("end", *jids)
    assert pair.server.stop() == 0


@pytest.mark.fault("N2")
def test_n2_with_fail_fast_or_without_any_redis_no_server_starts(pair: Pair) -> None:
    pair.archive.kill()
    server = pair.server
    server._arguments.append("--fail-fast")
    server.start(ready=False)
    assert server.wait() == 4, server.log_text()
    server._arguments.pop()
    pair.default.kill()
    server.start(ready=False)
    server.wait_for_event("redis.down", redis="default")
    server.wait_for_event("redis.down", redis="archive")
    pair.archive.start()
    server.wait_for_event("server.started")
    pair.wait_for("end", pair.report())
    assert server.stop() == 0


@pytest.mark.fault("N3")
def test_n3_a_lease_that_is_lost_at_one_redis_ends_the_jobs_of_its_groups_alone(pair: Pair) -> None:
    pair.server.start()
    kept, lost = pair.mail("go"), pair.report("go")
    pair.wait_for("start", kept, lost)
    with pair.archive.client() as client:
        identity = _owner(client)
        admin = Admin(RedisConfig(pair.archive.url, "old:"))

        def recovered() -> bool:
            # The server may renew its lease in between.
            client.delete(ARCHIVE.lease(identity))
            return admin.run(leases.recover(ARCHIVE, identity, ["reports"], 100)) == 1

        wait_for(recovered)
    pair.server.wait_for_event("lease.lost", redis="archive")
    pair.server.wait_for_notes(2, "start", lost)
    pair.server.let_go("go")
    pair.wait_for("end", kept, lost)
    assert pair.noted("start").count(kept) == 1
    assert [event["redis"] for event in pair.server.events("lease.lost")] == ["archive"]
    with pair.archive.client() as client:
        # The lost identity may take the job once more, by its blocking move, and then it ends early.
        wait_for(lambda: as_list(client.hkeys(ARCHIVE.owners)))
        assert _owner(client) != identity
    assert pair.server.stop() == 0


@pytest.mark.fault("N4")
def test_n4_fenced_jobs_end_with_the_lease_at_their_own_redis(pair: Pair) -> None:
    # A job that is asked has a fifteenth of it to end.
    pair.file.write_text(pair.text.replace("lease = 2", "lease = 9"))
    pair.server.start()
    kept = pair.push(pair.default, "mail", "strict_mail", "go")
    cut = pair.push(pair.archive, "reports", "strict_report", "go")
    plain = pair.report("go")
    pair.wait_for("start", kept, cut, plain)
    with pair.archive.stopped():
        pair.wait_for("cut", cut)
    pair.server.let_go("go")
    pair.wait_for("end", kept, cut, plain)
    assert pair.noted("cut") == [cut]
    assert [pair.noted("start").count(jid) for jid in (kept, cut, plain)] == [1, 2, 1]
    assert pair.server.stop() == 0


def _owner(client: Redis) -> str:
    [identity] = as_list(client.hkeys(ARCHIVE.owners))
    return str(identity.decode())


# Reloads, upgrades, drains, cron


def test_a_reload_moves_a_queue_and_names_a_redis_that_needs_a_restart(pair: Pair) -> None:
    server = pair.server.start()
    pair.reload(f'{pair.text}[redis.new]\nurl = "redis://127.0.0.1:1/0"\n')
    assert server.wait_for_event("reload.incomplete")["keys"] == ["redis.new"]
    server.wait_for_event("reload.done")
    pair.reload(f'{pair.text}[redis.new]\nurl = "redis://127.0.0.1:1/0"\n[queues.other]\nredis = "new"\n')
    assert "'other' is on the Redis 'new', which was added" in server.wait_for_event("reload.failed")["error"]
    pair.wait_for("end", pair.mail(), pair.report())
    # Jobs of the queue go to the default Redis from now on; what waits at the other one stays.
    running = pair.report("go")
    pair.wait_for("start", running)
    pair.reload(pair.text.replace('redis = "archive"', ""))
    server.let_go("go")
    server.wait_for_event("reload.done")
    pair.wait_for("end", running, pair.push(pair.default, "reports", "report"))
    assert server.stop() == 0


def test_an_upgrade_while_one_redis_is_away(pair: Pair) -> None:
    server = pair.server.start()
    pair.archive.kill()
    server.signal(signal.SIGUSR2)
    server.wait_for_event("server.stopped")
    pair.wait_for("end", pair.mail())
    pair.archive.start()
    pair.wait_for("end", pair.report())
    [new] = [event["pid"] for event in server.events("server.started") if event["pid"] != server.pid]
    os.kill(new, signal.SIGTERM)
    server.wait_for_event("server.stopped", 2)


def test_a_drain_runs_what_waits_at_all_of_them(pair: Pair) -> None:
    jids = [pair.mail(), pair.report(), pair.report()]
    pair.server._arguments.append("--drain=0s")
    pair.server.start()
    assert pair.server.wait() == 0
    assert sorted(pair.noted("end")) == sorted(jids)
    [drained] = pair.server.events("server.drained")
    assert (drained["jobs"], drained["left"]) == (3, 0)


def test_a_drain_does_not_wait_for_a_redis_that_has_none_of_its_queues(pair: Pair) -> None:
    pair.archive.kill()
    jid = pair.mail()
    pair.server._arguments += ["--queue", "mail", "--drain=0s"]
    pair.server.start(ready=False)
    assert pair.server.wait() == 0
    [drained] = pair.server.events("server.drained")
    assert (pair.noted("end"), drained["left"]) == ([jid], 0)


def test_a_drain_waits_for_the_jobs_of_a_queue_that_a_reload_has_dropped(pair: Pair) -> None:
    pair.server._arguments.append("--drain=0s")
    kept = pair.report("go")
    server = pair.server.start()
    pair.wait_for("start", kept)
    server.write_app(APP.replace('"reports"', '"mail"'))
    pair.reload(pair.text.replace('[queues.reports]\nconcurrency = 2\nredis = "archive"\n', ""))
    server.wait_for_event("reload.done")
    pair.wait_for("end", pair.mail())
    server.let_go("go")
    assert server.wait() == 0
    [drained] = server.events("server.drained")
    assert (len(pair.noted("end")), drained["jobs"]) == (2, 2)


@contextmanager
def an_outage_in_which_a_queue_is_dropped(pair: Pair) -> Iterator[str]:
    """HUP has dropped ``reports``, with a job that ran, while its Redis hangs; yields the id of the job."""
    text = pair.text = pair.text.replace("lease = 2", "lease = 2\nshutdown_timeout = 1")
    pair.file.write_text(text)
    pair.server.start()
    jid = pair.report("go")
    pair.wait_for("start", jid)
    with pair.archive.stopped():
        pair.server.write_app(APP.replace('"reports"', '"mail"'))
        pair.reload(text.replace('[queues.reports]\nconcurrency = 2\nredis = "archive"\n', ""))
        pair.server.wait_for_event("stop.failed", group="reports")
        yield jid


def test_jobs_of_a_queue_that_a_reload_drops_during_an_outage_are_given_back(pair: Pair) -> None:
    with an_outage_in_which_a_queue_is_dropped(pair):
        pair.wait_for("end", pair.mail())
    assert pair.server.wait_for_event("jobs.given_back")["jobs"] == 1
    with pair.archive.client() as client:
        assert client.llen(ARCHIVE.queue("reports")) == 1
        assert client.keys("*:inprogress") == []
    assert pair.server.stop() == 0


def test_jobs_of_a_queue_that_is_dropped_and_comes_back_run_again(pair: Pair) -> None:
    with an_outage_in_which_a_queue_is_dropped(pair) as jid:
        pair.server.write_app(APP)
        pair.reload(pair.text)
        pair.server.wait_for_event("reload.done")
        pair.server.let_go("go")
    pair.wait_for("end", jid)
    assert pair.noted("start") == [jid, jid]
    assert pair.server.stop() == 0


def test_a_drain_does_not_wait_for_the_redis_of_a_queue_that_was_dropped(pair: Pair) -> None:
    pair.server._arguments.append("--drain=0s")
    with an_outage_in_which_a_queue_is_dropped(pair):
        assert pair.server.wait() == 0


LINK = """
@worker.client_middleware
def elsewhere(draft, call_next):
    return call_next(draft.replace(queue="mail") if "astray" in draft.args else draft)
"""


@pytest.mark.parametrize("link", [False, True])
def test_a_cron_entry_fires_in_the_redis_of_its_queue(pair: Pair, link: bool) -> None:
    entry = '[[cron]]\nname = "{0}"\nevery = "1s"\nqueue = "reports"\nclass = "report"\nargs = {1}\n'
    pair.server.let_go("astray")
    pair.file.write_text(pair.text + entry.format("right", "[]") + entry.format("wrong", '["astray"]') * link)
    pair.server.write_app(APP + LINK * link)
    pair.server.start()
    fired = pair.server.wait_for_event("cron.fired")
    assert (fired["redis"], fired["queue"]) == ("archive", "reports")
    pair.wait_for("end", fired["jid"])
    if link:
        failed = pair.server.wait_for_event("cron.failed")
        assert "a cron entry fires in the Redis of its queue" in failed["error"]
    assert pair.server.stop() == 0
    with pair.default.client() as client:
        assert client.keys("*cron*") == []
