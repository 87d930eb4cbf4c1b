"""Each role does all its work with the rights that ``pyworkers acl`` prints, and needs them all."""

from __future__ import annotations

import json
import time
from hashlib import sha1
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from pyworkers import Client
from pyworkers.api import AuditLog, DeploySet
from pyworkers.api.audit import AuditEntry
from pyworkers.api.browse.pages import read_page, read_rows
from pyworkers.api.browse.places import DEAD, RETRIES, SCHEDULED, Place
from pyworkers.api.enqueueing import Receipt, enqueue, read, writing_with
from pyworkers.cli import _COMMANDS as COMMANDS
from pyworkers.cli import main
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import DuplicateJobError, RedisUnavailableError, ResultTimeout, StoreError
from pyworkers.plugins.batches import Batch
from pyworkers.protocol.conditions import Conditions, UniqueLock
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.plans import BatchPlan
from pyworkers.protocol.keys import Keys
from pyworkers.store.acl import Role, commands
from pyworkers.store.admin import Admin
from pyworkers.store.alarms import take_watch
from pyworkers.store.measures.gauges import MINUTE
from pyworkers.web import app
from pyworkers.web.navigation import NAVIGATION
from tests.helpers.acl import OPTIONAL, is_six, refused, url_of, watching
from tests.helpers.records import hold_order, raw_job, register
from tests.helpers.server_process import Serve, ServerProcess, serving
from tests.helpers.support import PATIENCE_S, wait_for
from tests.integrations.web import patient, served
from tests.web.visitor import Visitor

# What a connection needs before anything else; Redis permits it to everybody, or it may be refused.
ALWAYS = OPTIONAL | {"auth", "hello", "select"}
GHOST = "gone:1:abcdefabcdef"

LOOKING = [
    ["stats"],
    ["stats", "--history", "2"],
    ["queues"],
    ["jobs", "other"],
    ["jobs", "other", "show", "1"],
    ["scheduled"],
    ["scheduled", "show", "1"],
    ["retries", "list", "--class", "choose"],
    ["dead"],
    ["processes"],
    ["workers"],
    ["audit"],
    ["locks"],
    ["batches"],
    ["batches", "show", "b"],
    ["cron", "list"],
    ["status", "tracked"],
    ["result", "tracked", "--timeout", "10ms"],
    ["logs", "tracked"],
    ["finished"],
    ["errors"],
    ["metrics"],
    ["deploys"],
    ["thresholds"],
    ["limits"],
    ["check"],
]
CHANGING = [
    ["move", "other", "--from", "default", "--to", "archive", "--yes"],
    ["move", "other", "--from", "archive", "--to", "default", "--yes"],
    ["limits", "reset", "slots"],
    ["limits", "reset", "turns"],
    ["jobs", "q", "kill", "q1"],
    ["jobs", "q", "delete", "--all", "--yes"],
    ["jobs", "other", "clear", "--yes"],
    ["scheduled", "retry", "schedule1"],
    ["scheduled", "kill", "schedule2"],
    ["scheduled", "delete", "schedule3"],
    ["retries", "retry", "retry1"],
    ["retries", "kill", "retry2"],
    ["retries", "delete", "retry3"],
    ["dead", "retry", "dead1"],
    ["dead", "delete", "dead2"],
    ["cancel", "schedule4"],
    ["cancel", "iterable"],
    ["cancel", "--batch", "b"],
    ["scheduled", "clear", "--yes"],
    ["retries", "clear", "--yes"],
    ["dead", "clear", "--yes"],
    ["locks", "release", "C|q|12"],
    ["batches", "delete", "b"],
    ["pause", "q"],
    ["resume", "q"],
    ["quiet", "web"],
    ["stop", "--all", "--yes"],
    ["reload", "--all", "--yes"],
    ["cron", "add", "nightly", "0 3 * * *", "Add"],
    ["cron", "pause", "nightly"],
    ["cron", "resume", "nightly"],
    ["cron", "trigger", "nightly"],
    ["cron", "remove", "nightly"],
    ["thresholds", "set", "waiting > 5"],
    ["thresholds", "remove", "waiting"],
    ["top", "--once"],
]
# Commands that use no Redis; that run until a signal; and that need more than the data here.
ELSEWHERE = {
    *("acl", "completion", "config", "generate", "init", "version", "web-user"),
    *("alarms", "run", "web"),
    *("adopt", "enqueue", "stack", "undo"),
}
# Needed only where a list or a set changes while it is read.
PAGING = {"lpos", "zcount", "zrank", "zscore"}

CODE = """
from pyworkers.protocol.effects import DeleteKey
from pyworkers.worker.execution import current_execution

@worker.cron("every 1s")
@worker.job(queue="q", concurrency=3)
def tick():
    note("tick")

@worker.job(queue="q", limits=[worker.limit("slots", concurrency=1), worker.limit("turns", rate=1, per=0.2)])
def limited(what):
    note("limited", what)

@worker.job(queue="rated", keep=(10, 60))
def rated():
    note("rated")

@worker.job(queue="q")
def choose(what):
    message = current_message()
    note(what, message.attempt)
    if what == "kill":
        raise Kill("no")
    if what == "batch":
        for _ in range(40):
            message.log("x" * 2000)
        with worker.batch():
            choose.enqueue("member")
    if what == "retry" and message.attempt == 0:
        raise Retry(delay=0.2)
    if what == "wait":
        current_execution().note(DeleteKey("nothing"))
    if what == "snooze" and not message.data.get("snoozed"):
        Client().enqueue_in(0.2, "q", "choose", ["later"])
        Client().enqueue_bulk("q", "choose", [["bulk"], ["bulk"]])
        Client().result(Client().enqueue_in(0.3, "q", "choose", ["tracked"], track=60))
        raise Snooze(3600)
    while what == "wait":
        time.sleep(0.01)
"""
SETTINGS = """
[server]
lease = 2
shutdown_timeout = 0.3
[retry]
drain_goretry = true
[queues.rated]
rate = "100/s"
max_running = 5
"""


@pytest.mark.fault("R10")
def test_a_worker_needs_all_its_rights_and_no_more(tmp_path: Path, redis_url: str, namespace: str) -> None:
    (tmp_path / "workers.toml").write_text(SETTINGS)
    keys = Keys(namespace)
    url = url_of(redis_url, Role.WORKER, namespace)
    with redis.Redis.from_url(redis_url, single_connection_client=True) as admin:
        admin.acl_log_reset()
        admin.config_resetstat()
        admin.hset(keys.owners, GHOST, '["q"]')
        admin.lpush(keys.inprogress("q", GHOST), job_of("recovered"))
        admin.sadd(keys.processes, GHOST)
        admin.zadd(keys.goretry, {job_of("go"): 1})
        # Held for a job that another program has deleted, and for one that Sidekiq runs.
        for jid in ("deleted", "ruby"):
            admin.set(keys.unique(jid), jid)
            admin.sadd(keys.locks, f"unique:{jid}")
        with Client(redis_url, namespace=namespace) as client:
            client.enlist(BatchPlan("b", "hold", members=["deleted"]))
        register(admin, keys, "web:1:abcdef", {"queues": ["other"]}, beat=time.time() + 3600)
        admin.hset(keys.work("web:1:abcdef"), "t", json.dumps({"payload": raw_job("ruby").decode()}))
        with (
            watching(redis_url, admin) as watch,
            serving(tmp_path, url, namespace, CODE, "--config", str(tmp_path / "workers.toml")) as server,
        ):
            server.redis = admin
            wait_for(lambda: not admin.sismember(keys.processes, GHOST), message="the ghost is forgotten")
            server.push("q", *(job_of(what) for what in ("kill", "retry", "snooze", "batch")))
            # Another master has the turn to move due jobs, until this one has seen it.
            turn = keys.turn(keys.retry)
            wait_for(lambda: admin.set(turn, "another", px=500) and "pttl" in watch.commands)
            for notes in (
                ("kill", 0),
                ("retry", 1),
                ("later", 0),
                ("recovered", 0),
                ("go", 0),
                ("member", 0),
                ("tick",),
            ):
                server.wait_for_notes(1, *notes)
            server.wait_for_notes(2, "bulk")
            large = job_of("later").replace(
                b'"jid": "later"', b'"padding": "%s", "jid": "large"' % (b"x" * 40_000)
            )
            crowd = [large.replace(b'"large"', b'"large%d"' % n) for n in range(60)]

            def watched_a_crowd() -> bool:
                server.push("q", *crowd)
                wait_for(lambda: server.settled("q"), message="all large jobs are settled")
                return {"watch", "unwatch", "lset"} <= watch.commands

            # A busy queue with large jobs alone does without a script, but not in the second after an attempt
            # that met another job, in which a whole crowd may pass.
            wait_for(watched_a_crowd, message="large jobs pass without a script")
            server.push("q", *(raw_job(f"l{n}", **{"class": "limited", "args": [n]}) for n in range(3)))
            server.wait_for_notes(3, "limited")
            server.push("rated", raw_job("rated", **{"class": "rated", "args": []}))
            server.wait_for_notes(1, "rated")
            take_while_memory_is_full(admin, server)
            server.push("q", job_of("wait"))
            server.wait_for_notes(1, "wait")
            wait_for(lambda: "lpos" in watch.commands, message="a note")
            server.push("q", large)
            server.wait_for_event("job.done", jid="large")
            [identity] = [name.decode() for name in admin.hkeys(keys.owners)]
            admin.lpush(keys.inprogress("q", identity), job_of("stray"))
            server.wait_for_notes(1, "stray")
            server.push("q", job_of("wait").replace(b'"jid": "wait"', b'"jid": "long"'))
            admin.hset(keys.iteration("long"), "cancelled", 1)
            server.wait_for_event("job.cancelled", jid="long")
            wait_for(lambda: not admin.exists(keys.unique("deleted")), message="the sweep releases")
            assert admin.exists(keys.unique("ruby"))
            wait_for(lambda: admin.exists(keys.stat("processed")), message="the counters are written")
            wait_for(lambda: admin.keys(keys.executions("*")), message="the metrics are written")
            # A server with a new identity can miss the turn, and asks again after a minute.
            wait_for(lambda: admin.exists(keys.gauges(MINUTE)), 2 * PATIENCE_S, "the gauges are written")
            # Documents have it with the configuration, and so with the user, of the server.
            assert CliRunner().invoke(main, ["check", "--url", url, "--namespace", namespace]).exit_code == 0
            assert server.stop() == 0
        assert refused(admin) == []
        assert watch.commands - ALWAYS - set(commands(Role.WORKER)) == set()
        # MONITOR shows no administrative commands.
        rights = set(commands(Role.WORKER))
        hidden = {right for right in rights if right.startswith("client|")}
        assert rights - watch.commands == (hidden if is_six(admin) else {"client|unblock"})
        counted = "cmdstat_client" if is_six(admin) else "cmdstat_client|unblock"
        assert admin.info("commandstats")[counted]["calls"] > 0
        assert server.events("redis.refused", code="NOPERM") == server.events("redis.down") == []


def test_the_rights_of_each_command_are_tested() -> None:
    tried = {words[0] for words in (*LOOKING, *CHANGING)}
    assert not COMMANDS.keys() - tried - ELSEWHERE, "put it into LOOKING, or, if it changes a key, CHANGING"


def job_of(what: str) -> bytes:
    return raw_job(what, **{"class": "choose", "args": [what]})


def take_while_memory_is_full(admin: redis.Redis, server: ServerProcess) -> None:
    """A first job that is taken then has its own path in the script."""
    admin.sadd(server.keys.paused, "q")
    server.wait_for_event("manager.state", queue="q", state="paused")
    server.push("q", job_of("full"))
    admin.config_set("maxmemory", 1)
    try:
        admin.srem(server.keys.paused, "q")
        server.wait_for_notes(1, "full")
    finally:
        admin.config_set("maxmemory", 0)


def test_a_client_needs_all_its_rights_and_no_more(redis_url: str, namespace: str) -> None:
    url = url_of(redis_url, Role.CLIENT, namespace)
    with redis.Redis.from_url(redis_url, single_connection_client=True) as admin:
        admin.acl_log_reset()
        with watching(redis_url, admin) as watch, Client(url, namespace=namespace) as client:
            client.enqueue("q", "C", [1])
            client.enqueue_in(60, "q", "C", [1])
            client.enqueue_at(time.time() + 60, "q", "C", [1])
            client.enqueue_bulk("q", "C", [[1], [2]])
            for jid in ("j1", "j2"):
                conditions = Conditions(UniqueLock("unique:k", 60, "replace"), max_waiting=10)
                client.push([PushedJob("q", job_of(jid), jid, time.time() + 60, conditions)])
            client.push([PushedJob("q", job_of("j3"), "j3", None, Conditions(max_waiting=10))])
            use_batches(client, admin)
            admin.script_flush()
            client.push([PushedJob("q", job_of("j4"), "j4", None, Conditions(max_waiting=10))])
            jid = client.enqueue("q", "C", [1], track=60)
            assert client.status(jid).state == "waiting"
            assert client.history(jid) is None
            with pytest.raises(ResultTimeout):
                client.result(jid, timeout=0.01)
            watch.wait_for(commands(Role.CLIENT))
        assert refused(admin) == []
        assert watch.commands - ALWAYS == set(commands(Role.CLIENT))


def use_batches(client: Client, admin: redis.Redis) -> None:
    """Make a batch with all parts, and one that is deleted again, because the push of a member is refused."""
    keys = Keys(client.config.namespace)
    admin.zadd(keys.batches, {"expired": 1})
    outer, inner = (
        BatchPlan("outer", "hold", {"answer": "1"}),
        BatchPlan("inner", "hold", then=["q " + job_of("t").decode()]),
    )
    outer.nest(inner)
    client.enlist(outer)
    assert Batch(client, "outer").status().done == 1
    held = Conditions(UniqueLock("unique:k", 60, "raise"))
    with pytest.raises(DuplicateJobError):
        client.enlist(BatchPlan("refused", "hold", jobs=[PushedJob("q", job_of("j5"), "j5", None, held)]))


def test_a_user_reaches_no_more_than_its_work(redis_url: str, namespace: str) -> None:
    """What Redis 7 keeps apart by selectors, and what no role needs in 6.2 either."""
    keys = Keys(namespace)
    waiting = keys.inprogress("q", GHOST)
    forbidden: list[tuple[Role, tuple[str, ...]]] = [
        (Role.READ_ONLY, ("EVAL", "return 1", "0")),
        (Role.READ_ONLY, ("GET", keys.web_secret)),
        (Role.WORKER, ("GET", keys.web_secret)),
        (Role.READ_ONLY, ("HGETALL", "session:42:data")),
    ]
    with redis.Redis.from_url(redis_url) as admin:
        if not is_six(admin):
            forbidden += [
                *((Role.CLIENT, words) for words in (("LRANGE", waiting, "0", "-1"), ("DEL", waiting))),
                (Role.CLIENT, ("EVAL", "return redis.call('DEL', KEYS[1])", "1", waiting)),
                (Role.READ_ONLY, ("LRANGE", keys.cron_entries, "0", "-1")),
                (Role.WORKER, ("DEL", keys.retry)),
            ]
        admin.lpush(waiting, job_of("running"))
        admin.set(keys.web_secret, "secret")
        for role, words in forbidden:
            with (
                redis.Redis.from_url(url_of(redis_url, role, namespace)) as user,
                pytest.raises(redis.ResponseError, match=r"(?i)no permissions|can.t access|ACL fail"),
            ):
                user.execute_command(*words)
        assert admin.llen(waiting) == 1


def test_a_reader_sees_what_holds_an_ordered_queue(redis_url: str, namespace: str) -> None:
    keys, job = Keys(namespace), raw_job("1")
    with redis.Redis.from_url(redis_url) as admin:
        admin.lpush(keys.queue("q"), job)
        admin.hset(keys.owners, "a:1:bcdefa", '["q"]')
        until = str(int((time.time() + 600) * 1000))
        hold_order(admin, keys, "q", "a:1:bcdefa", until=until, head=sha1(job).hexdigest())
    url = url_of(redis_url, Role.READ_ONLY, namespace)
    found = CliRunner().invoke(main, ["queues", "--url", url, "--namespace", namespace])
    assert "held by 1" in found.stdout, found.output


def test_what_is_not_permitted_is_a_named_error(redis_url: str, namespace: str) -> None:
    url = url_of(redis_url, Role.CLIENT, namespace)
    with Client(url, namespace="other:") as client, pytest.raises(StoreError, match="NOPERM") as caught:
        client.enqueue("q", "C")
    assert caught.value.code == "NOPERM"
    wrong = url.replace("correct-horse", "battery")
    with Client(wrong) as client, pytest.raises(RedisUnavailableError, match="refused the login") as refusal:
        client.enqueue("q", "C")
    assert refusal.value.code == "WRONGPASS"


def test_an_administrator_needs_all_its_rights_and_no_more(
    redis_url: str, second_redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYWORKERS_REDIS__ARCHIVE__URL", second_redis_url)
    monkeypatch.setenv("PYWORKERS_REDIS__ARCHIVE__NAMESPACE", namespace)
    url = url_of(redis_url, Role.ADMIN, namespace)
    keys = Keys(namespace)
    with redis.Redis.from_url(redis_url, single_connection_client=True) as admin:
        admin.acl_log_reset()
        admin.sadd(keys.queues, "q", "other")
        for queue in ("q", "other"):
            admin.lpush(keys.queue(queue), *[job_of(f"{queue}{number}") for number in range(10)])
        plan = BatchPlan("b", "hold", {"answer": "1"})
        for key in (keys.schedule, keys.retry, keys.dead):
            jids = [f"{key.removeprefix(namespace)}{number}" for number in range(10)]
            members = [
                raw_job(jid, **{"class": "choose", "args": [jid]}, track=60, batch="b") for jid in jids
            ]
            plan.members.extend(jids)
            admin.zadd(key, {member: time.time() + 3600 for member in members})
        admin.hset(keys.limits, mapping={"slots": "1 0", "turns": "1 1"})
        admin.zadd(keys.limit("slots"), {f"{GHOST}|run": 1})
        admin.zadd(keys.limit_waiting("slots"), {"q limited": 9e9})
        admin.zadd(keys.schedule, {job_of("limited"): 9e9})
        admin.sadd(keys.processes, "web:1:abcdef")
        info = {"queues": ["q"], "started_at": time.time(), "identity": "web:1:abcdef"}
        admin.hset(keys.process("web:1:abcdef"), mapping={"info": json.dumps(info), "beat": time.time()})
        work = {"queue": "q", "payload": job_of("iterable").decode(), "run_at": 1}
        admin.hset(keys.work("web:1:abcdef"), "tid", json.dumps(work))
        admin.hset(keys.iteration("iterable"), "ex", 1)
        admin.lpush(keys.queue("other"), raw_job("other11", track=60))
        admin.hset(keys.job("other11"), "state", "waiting")
        for size in (66, 70_000):
            admin.xadd(keys.log("schedule3"), {"v": "{}", "n": size, "run": "", "i": 0})
        admin.expire(keys.job("other11"), 60)
        admin.set(keys.unique("C|q|12"), "j1")
        with Client(redis_url, namespace=namespace) as client:
            client.enlist(plan)
        with watching(redis_url, admin) as watch:
            for words in CHANGING:
                place = 2 if words[0] == "cron" else 1
                options = ["--url", url, "--namespace", namespace]
                result = CliRunner().invoke(main, [*words[:place], *options, *words[place:]])
                assert result.exit_code == int("iterable" in words), (words, result.output)
            assert admin.hexists(keys.iteration("iterable"), "cancelled")
            AuditLog(url, namespace=namespace).record(AuditEntry("ann", "::1", "queue.pause", "q", "done"))
            assert DeploySet(url, namespace=namespace).mark("v1.4.2")
            assert Admin(RedisConfig(url, namespace)).run(take_watch(keys, "holder", {}, 60))
            enqueue_as_the_dashboard(Admin(RedisConfig(url, namespace)))
            rights = set(commands(Role.ADMIN))
            looking = set(commands(Role.READ_ONLY))
            watch.wait_for(rights - looking)
        assert refused(admin) == []
        assert watch.commands - ALWAYS - rights == set()


def enqueue_as_the_dashboard(admin: Admin) -> None:
    """Push jobs by requests, with all that they may ask for."""
    given = {"queue": "q", "class": "C", "args": [1], "track": 60, "history": True, "batch": "members"}
    options = {"unique_for": 60, "on_duplicate": "replace", "max_waiting": 1000}
    admin.redis.hset(admin.keys.batch("members"), "open", 0)
    for number, more in enumerate([{}, {"in": 60, **options}, {"in": 60, **options}]):
        job = read({**given, **more}, time.time(), writing_with(None))
        receipt = Receipt(admin.keys.enqueued(str(number)), "digest", 60)
        assert admin.run(enqueue(admin.keys, [job], receipt)).jobs[0].is_new


def test_who_may_only_read_sees_everything(serve_either: Serve, redis_url: str, namespace: str) -> None:
    url = url_of(redis_url, Role.READ_ONLY, namespace)
    keys = Keys(namespace)
    with redis.Redis.from_url(redis_url, single_connection_client=True) as admin:
        admin.acl_log_reset()
        admin.sadd(keys.queues, "other")
        admin.lpush(keys.queue("other"), *[job_of(str(number)) for number in range(5)])
        admin.set(keys.unique("C|q|12"), "j1")
        for zset in (keys.schedule, keys.retry, keys.dead):
            admin.zadd(zset, {job_of(str(number)): time.time() + 3600 + number for number in range(5)})
        admin.sadd(keys.finished, "server")
        admin.hset(keys.limits, "slots", "2 0")
        admin.zadd(keys.limit("slots"), {"j|host:1:abcdef": "inf"})
        Admin(RedisConfig(redis_url, namespace)).run(take_watch(keys, "holder", {}, 600))
        with Client(redis_url, namespace=namespace) as client:
            client.enqueue("other", "C", jid="tracked", track=60)
            client.enlist(BatchPlan("b", "hold", members=["j"]))
        with serve_either(CODE), watching(redis_url, admin) as watch:
            wait_for(lambda: admin.smembers(keys.processes), message="the server is shown")
            options = ["--url", url, "--namespace", namespace]
            for words in LOOKING:
                place = 2 if words[0] == "cron" else 1
                result = CliRunner().invoke(main, [*words[:place], *options, *words[place:]])
                expected = 1 if words[0] in ("check", "result") else 0
                assert result.exit_code == expected, (words, result.output)
            look_at_pages(Admin(RedisConfig(url, namespace)))
            look_at_dashboard(url, namespace)
            rights = set(commands(Role.READ_ONLY))
            watch.wait_for(rights - PAGING)
        # Who may only read cannot ask the servers for fresh numbers, nor note a wait, and does without.
        # The secret of the dashboard is not for it.
        denied = {"eval", "evalsha", "set", "zadd", "expire", keys.web_secret}
        assert {what for _, what in refused(admin)} == denied


def look_at_dashboard(url: str, namespace: str) -> None:
    """Open the pages of the dashboard."""
    with patient(), served(app(url, namespace=namespace, token="")) as root:
        visitor = Visitor(f"{root}/")
        opened = [*(path for path, _ in NAVIGATION), "queues/other", "limits/slots", "batches/b"]
        found = {path: visitor.get(path).text for path in (*opened, "jobs/tracked", "metrics/C")}
    assert "slots 2" in found["limits"]
    assert "No process watches" not in found["alarms"]


def look_at_pages(admin: Admin) -> None:
    """Read jobs as the pages of the dashboard do, and find one again that is gone."""
    for place in (Place.of_queue("other"), SCHEDULED, RETRIES, DEAD):
        assert len(admin.run(read_page(admin.keys, place, 0, 2)).rows) == 2
        assert admin.run(read_rows(admin.keys, place, ["0_ab_1.5"])) == [None]
