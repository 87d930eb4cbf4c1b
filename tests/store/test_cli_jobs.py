"""The administrator's commands against real servers: what they show and change, and when they refuse."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from pyworkers.cli import main
from pyworkers.cli.bulk import tell_undo, undo_facts
from pyworkers.protocol.keys import Keys
from pyworkers.store import undo
from pyworkers.store.calls import one
from pyworkers.store.undo import DeletionNumbers
from tests.helpers.records import raw_job, register
from tests.helpers.replies import as_bytes, as_list
from tests.store.conftest import Cli


def jids(db: redis.Redis, key: str) -> set[str]:
    found = db.lrange(key, 0, -1) if db.type(key) == b"list" else db.zrange(key, 0, -1)
    return {json.loads(raw)["jid"] for raw in as_list(found)}


# Looking


def test_dead_jobs_are_listed_from_the_latest(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    now = time.time()
    failed = raw_job("j1", error_class="Timeout", error_message="no\nanswer")
    db.zadd(keys.dead, {failed: now - 7215, raw_job("j2"): now - 5430, b"\xff\x1b[2J": now - 100_000})
    assert cli("dead").stdout.splitlines() == [
        "died      jid  queue  class  error",
        "1 h ago   j2   q      Add",
        r"2 h ago   j1   q      Add    Timeout: no\nanswer",
        "27 h ago                     unreadable: not UTF-8: invalid start byte at byte 0",
    ]
    exact = cli("dead", "--utc").stdout.splitlines()[1].split()[0]
    assert datetime.fromisoformat(exact).timestamp() == pytest.approx(now - 5430, abs=0.002)


def test_scheduled_and_failed_jobs_are_listed_from_the_next_one(
    cli: Cli, keys: Keys, db: redis.Redis
) -> None:
    now = time.time()
    for key in (keys.schedule, keys.retry):
        db.zadd(key, {raw_job("late", retry_count=4): now + 7230, raw_job("soon"): now + 5430})
    assert [line.split() for line in cli("scheduled", "list").stdout.splitlines()] == [
        ["due", "jid", "queue", "class", "arguments"],
        ["in", "1", "h", "soon", "q", "Add", "1"],
        ["in", "2", "h", "late", "q", "Add", "1"],
    ]
    assert cli("retries").stdout.splitlines()[2].split() == ["in", "2", "h", "5", "late", "q", "Add"]
    db.zadd(keys.retry, {raw_job("overdue"): now - 3610})
    assert cli("retries").stdout.splitlines()[1].split() == ["1", "h", "ago", "overdue", "q", "Add"]


def test_waiting_jobs_are_listed_from_the_newest(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.lpush(
        keys.queue("q"), raw_job("j1", enqueued_at=time.time() - 4530), raw_job("j2", args=["a", {"b": None}])
    )
    assert cli("jobs", "q").stdout.splitlines() == [
        "enqueued  jid  class  arguments",
        '          j2   Add    "a", {"b": null}',
        "1 h ago   j1   Add    1",
    ]


def test_a_list_ends_at_its_limit_and_says_so(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job(f"j{n}"): n for n in range(30)})
    result = cli("dead")
    assert len(result.stdout.splitlines()) == 1 + 25
    assert result.stderr == "… more of 30 jobs: --limit 0 shows all\n"
    assert len(cli("dead", "list", "--limit", "0").stdout.splitlines()) == 1 + 30
    assert len(cli("dead", "--limit", "3").stdout.splitlines()) == 1 + 3


def test_a_list_can_be_filtered(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    now = time.time()
    db.zadd(
        keys.dead,
        {
            raw_job("a", **{"class": "Mail"}): now - 30,
            raw_job("b", error_message="Timeout"): now - 90,
            raw_job("c", queue="other"): now - 3700,
        },
    )

    def shown(*words: str) -> list[str]:
        return [item["jid"] for item in json.loads(cli("dead", "list", "--json", *words).stdout)]

    assert shown() == ["a", "b", "c"]
    assert shown("--class", "M*") == ["a"]
    assert shown("--error", "timeout") == ["b"]
    assert shown("--queue", "other") == ["c"]
    assert shown("--older-than", "1m") == ["b", "c"]
    assert shown("--older-than", "1m", "--newer-than", "1h") == ["b"]
    assert cli("dead", "--class", "none").stderr == "no matching jobs in dead\n"


def test_a_list_as_json_holds_the_whole_envelope(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("a", big=12345678901234567890): 5.5, b"no \x1b job": 1.0})
    first, second = json.loads(cli("dead", "--json").stdout)
    assert first["job"]["big"] == 12345678901234567890
    assert (first["score"], first["class"], first["args"]) == (5.5, "Add", [1])
    assert second["raw"] == "no \x1b job"
    assert json.loads(cli("retries", "--json").stdout) == []


def test_a_job_is_shown_with_all_its_fields(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("a", note="\x1b[31mred", error_backtrace=["a.py:1"], nested={"b": [1]}): 5.5})
    lines = cli("dead", "show", "a").stdout.splitlines()
    assert ["note", r"\x1b[31mred"] in [line.split() for line in lines]
    assert lines[-2:] == ["error_backtrace", "    a.py:1"]
    assert any(line.startswith("score") and line.endswith(" d ago)") for line in lines)
    exact = cli("dead", "show", "a", "--utc").stdout.splitlines()
    assert ["score", "1970-01-01T00:00:05.500Z"] in [line.split() for line in exact]
    shown = json.loads(cli("dead", "show", "a", "--json").stdout)
    assert (shown["job"]["nested"], shown["backtrace"]) == ({"b": [1]}, ["a.py:1"])
    missing = cli("dead", "show", "b\x1b")
    assert (missing.exit_code, missing.stderr) == (1, "no such job: b\\x1b\n")


@pytest.mark.parametrize(
    ("score", "shown"), [(253_402_300_799, "9999-12-31T23:59:59.000Z"), ("inf", "inf"), (2e11, "8307-")]
)
def test_a_score_is_in_seconds_however_large(
    cli: Cli, keys: Keys, db: redis.Redis, score: Any, shown: str
) -> None:
    db.zadd(keys.schedule, {raw_job("a"): score})
    (line,) = [x for x in cli("scheduled", "show", "a", "--utc").stdout.splitlines() if x.startswith("score")]
    assert line.split()[1].startswith(shown)


def test_the_options_for_redis_may_stand_before_the_command(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    db.zadd(keys.dead, {raw_job("a"): 1.0})
    where = ["--url", redis_url, "--namespace", namespace]
    for words in (["dead", *where], ["dead", *where, "list"], ["dead", *where, "--json"]):
        assert "a" in CliRunner().invoke(main, words).stdout
    db.lpush(keys.queue("q"), raw_job("w"))
    assert "w" in CliRunner().invoke(main, ["jobs", *where, "q"]).stdout
    assert "w" in CliRunner().invoke(main, ["jobs", "q", *where, "list"]).stdout


# Changing


def test_named_jobs_are_changed_without_a_question(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job(f"j{n}", retry_count=5): n for n in range(5)})
    result = cli("dead", "retry", "j1", "j3")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "retried 2 jobs\n", "")
    assert jids(db, keys.dead) == {"j0", "j2", "j4"}
    assert jids(db, keys.queue("q")) == {"j1", "j3"}
    assert json.loads(as_bytes(db.lindex(keys.queue("q"), 0)))["retry_count"] == 4


def test_a_named_job_that_is_not_there_is_an_error(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.retry, {raw_job("a"): 1.0})
    result = cli("retries", "kill", "a", "b")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "killed 1 job\n", "no such job: b\n")
    assert jids(db, keys.dead) == {"a"}


@pytest.mark.parametrize(
    "words", [["--all"], ["--class", "Add"], ["--older-than", "1s"], ["a", "--queue", "q"]]
)
def test_more_than_named_jobs_need_a_yes_without_a_terminal(
    words: list[str], cli: Cli, keys: Keys, db: redis.Redis
) -> None:
    db.zadd(keys.dead, {raw_job("a"): 1.0})
    refused = cli("dead", "delete", *words)
    assert (refused.exit_code, jids(db, keys.dead)) == (2, {"a"})
    assert "stdin is not a terminal: pass --yes" in refused.stderr
    assert cli("dead", "delete", *words, "--yes").stdout == "deleted 1 job\n"
    assert db.zcard(keys.dead) == 0


def test_a_selection_of_jobs_is_required(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("a"): 1.0})
    result = cli("dead", "delete", "--yes")
    assert result.exit_code == 2
    assert "or --all" in result.stderr
    assert db.zcard(keys.dead) == 1


def test_a_dry_run_changes_nothing_and_counts(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.retry, {raw_job("a"): 1.0, raw_job("b", **{"class": "Other"}): 2.0, b"no job": 3.0})
    assert cli("retries", "kill", "--class", "Add", "--dry-run").stdout == "would kill 1 job\n"
    result = cli("retries", "retry", "--all", "--dry-run")
    assert result.stdout == "would retry 2 jobs\n"
    assert result.stderr == "1 job cannot be moved: not JSON: Expecting value: line 1 column 1 (char 0)\n"
    assert cli("retries", "clear", "--dry-run").stdout == "would delete 3 jobs\n"
    assert db.zcard(keys.retry) == 3


def test_the_result_as_json(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.retry, {raw_job("a"): 1.0, b"no job": 3.0})
    assert json.loads(cli("retries", "retry", "--all", "--yes", "--json").stdout) == {
        "action": "retry", "selected": 2, "done": 1, "gone": 0, "refused": 1, "missing": [], "dry_run": False,
    }  # fmt: skip
    assert json.loads(cli("retries", "clear", "--yes", "--json").stdout)["done"] == 1


def test_scheduled_jobs_are_run_now_with_their_count_as_it_was(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.schedule, {raw_job("a", retry_count=5): time.time() + 900})
    assert cli("scheduled", "retry", "a").stdout == "enqueued 1 job\n"
    assert json.loads(as_bytes(db.lindex(keys.queue("q"), 0)))["retry_count"] == 5


def test_waiting_jobs_run_first(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("q"), *(raw_job(f"j{number}") for number in range(5)))
    assert cli("jobs", "q", "run-first", "j3").stdout == "moved ahead 1 job\n"
    assert db.lindex(keys.queue("q"), -1) == raw_job("j3")
    assert cli("jobs", "q", "run-first", "--class", "Add", "--yes").stdout == "moved ahead 5 jobs\n"
    assert db.lrange(keys.queue("q"), 0, -1) == [raw_job(f"j{number}") for number in (3, 0, 1, 2, 4)]
    assert cli("jobs", "q", "run-first", "gone").exit_code == 1


def test_waiting_jobs_are_killed_and_deleted(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("q"), *(raw_job(f"j{n}", **{"class": f"C{n % 2}"}) for n in range(10)))
    assert cli("jobs", "q", "kill", "j4").stdout == "killed 1 job\n"
    assert cli("jobs", "q", "delete", "--class", "C1", "--yes").stdout == "deleted 5 jobs\n"
    assert jids(db, keys.queue("q")) == {"j0", "j2", "j6", "j8"}
    assert jids(db, keys.dead) == {"j4"}
    assert cli("jobs", "q", "clear").exit_code == 2
    assert cli("jobs", "q", "clear", "--yes").stdout == "deleted 4 jobs\n"


def test_a_mistyped_command_is_not_taken_for_a_job(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    result = cli("dead", "delte", "a")
    assert result.exit_code == 2
    assert "Did you mean 'delete'?" in result.stderr
    result = cli("dead", "run", "a")
    assert result.exit_code == 2
    assert "No such command 'run': the commands are list, show, retry, delete, edit, clear\n" in result.stderr


@pytest.mark.parametrize("place", ["jobs", "scheduled", "retries", "dead"])
def test_a_filter_finds_whole_jobs_in_the_order_of_the_list(
    cli: Cli, keys: Keys, db: redis.Redis, place: str
) -> None:
    sets = {"scheduled": keys.schedule, "retries": keys.retry, "dead": keys.dead}
    for number in range(60):
        # A large one is not read whole by the search; one has another class; "Add" is elsewhere, too.
        args = ["x" * 70_000] if number % 10 == 0 else ["Add", number]
        raw = raw_job(f"j{number}", args=args, **({"class": "Other"} if number % 3 else {}))
        if place == "jobs":
            db.lpush(keys.queue("q"), raw)
        else:
            db.zadd(sets[place], {raw: 1e9 + number})
    words = ("jobs", "q", "list") if place == "jobs" else (place, "list")
    listed = json.loads(cli(*words, "--json", "--limit", "0").stdout)
    found = json.loads(cli(*words, "--json", "--limit", "0", "--class", "Add").stdout)
    assert found == [one for one in listed if one["class"] == "Add"] and len(found) == 20
    assert json.loads(cli(*words, "--json", "--class", "A?d", "--limit", "3").stdout) == found[:3]


def test_a_filter_says_how_far_it_has_looked(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job(f"j{number}", error_class="Slow"): number for number in range(2000)})
    first = cli("dead", "list", "--error", "slow", "--limit", "10", "--json")
    assert len(json.loads(first.stdout)) == 10
    assert first.stderr == "looked at 10 of 2,000 jobs: --limit 0 looks at all\n"
    none = cli("dead", "--class", "none")
    assert (none.exit_code, none.stdout) == (0, "")
    assert none.stderr == "no matching jobs in dead\nlooked at all 2,000 jobs\n"


def test_a_mistyped_queue_is_not_taken_for_an_empty_one(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.sadd(keys.queues, "mail")
    assert cli("jobs", "mail").stderr == "no jobs in queue mail\n"
    mistyped = cli("jobs", "mial", "list", "--class", "Add")
    assert (mistyped.exit_code, mistyped.stdout) == (0, "")
    assert mistyped.stderr == "no matching jobs in queue mial, which is not known; did you mean mail?\n"
    unknown = "no jobs in queue other, which is not known; `pyworkers queues` shows all\n"
    assert cli("jobs", "other").stderr == unknown
    assert cli("jobs", "other", "--json").stdout == "[]\n"


# Servers and queues


def register_busy(db: redis.Redis, keys: Keys, identity: str, **info: Any) -> None:
    about = {"started_at": time.time() - 5000, "concurrency": 5, "queues": ["q"], "labels": [], **info}
    register(db, keys, identity, about, busy=1, beat=time.time())


def test_servers_and_running_jobs_are_shown(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    register_busy(db, keys, "web:1:a")
    about = {"queue": "q", "run_at": int(time.time()) - 3690, "payload": raw_job("j1").decode()}
    db.hset(keys.work("web:1:a"), "t1", json.dumps(about))
    assert cli("processes").stdout.splitlines()[1].split()[:6] == ["web:1:a", "1", "h", "ago", "1", "5"]
    running = cli("workers").stdout.splitlines()[1]
    assert running.split() == ["1", "h", "ago", "j1", "q", "Add", "t1", "web:1:a"]
    [process] = json.loads(cli("processes", "--json").stdout)
    assert (process["identity"], process["queues"]) == ("web:1:a", ["q"])
    [work] = json.loads(cli("workers", "--json").stdout)
    assert (work["jid"], work["identity"]) == ("j1", "web:1:a")
    assert cli("top", "--once").stdout.splitlines()[-1].split()[3:5] == ["j1", "q"]


def test_a_server_is_named_by_its_host_and_pid(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    for identity in ("web-1:10:a", "web-1:100:b", "web-10:1:c"):
        register_busy(db, keys, identity)
    assert (
        cli("quiet", "web-1:10").stdout
        == "Sent quiet to web-1:10:a: it takes no more jobs within 10 seconds\n"
    )
    assert db.lrange(keys.signals("web-1:10:a"), 0, -1) == [b"TSTP"]
    ambiguous = cli("stop", "web-1")
    assert ambiguous.exit_code == 1
    assert "is ambiguous, name one of 2 servers:\nweb-1:100:b\nweb-1:10:a\n" in ambiguous.stderr
    assert cli("stop", "web").exit_code == 1
    assert not any(db.exists(keys.signals(identity)) for identity in ("web-1:100:b", "web-10:1:c"))


def test_all_servers_are_stopped_after_a_yes_but_for_embedded_ones(
    cli: Cli, keys: Keys, db: redis.Redis
) -> None:
    register_busy(db, keys, "web:1:a")
    register_busy(db, keys, "puma:2:b", embedded=True)
    assert cli("stop", "--all").exit_code == 2
    assert cli("stop", "--all", "--dry-run").stdout == "would send stop to web:1:a\n"
    assert not db.exists(keys.signals("web:1:a"))
    assert (
        cli("stop", "--all", "--yes").stdout
        == "Sent stop to web:1:a: it stops after its jobs within 10 seconds\n"
    )
    assert db.lrange(keys.signals("web:1:a"), 0, -1) == [b"TERM"]
    assert not db.exists(keys.signals("puma:2:b"))
    assert cli("stop", "puma").exit_code == 1


def test_reload_leaves_other_programs_servers_out_and_refuses_to_name_one(
    cli: Cli, keys: Keys, db: redis.Redis
) -> None:
    register(db, keys, "our:1:a", {"hostname": "our", "reloads": True}, beat=time.time(), look=0)
    register_busy(db, keys, "ruby:2:b")
    assert (
        cli("reload", "--all", "-y").stdout
        == "Sent reload to our:1:a: it loads its code and configuration again within 10 seconds\n"
    )
    refused = cli("reload", "our", "ruby")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "ruby:2:b is a server of another program, which does not reload" in refused.stderr
    assert db.lrange(keys.signals("our:1:a"), 0, -1) == [b"HUP"]
    assert not db.exists(keys.signals("ruby:2:b"))


def test_queues_are_paused_and_resumed(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    assert cli("pause", "mail", "q").stdout == "mail is paused\nq is paused\n"
    assert cli("pause", "mail").stdout == "mail is paused already\n"
    assert [line.split()[0] for line in cli("queues").stdout.splitlines() if "paused" in line] == [
        "mail",
        "q",
    ]
    assert cli("resume", "mail", "none").stdout == "mail is resumed\nnone was not paused\n"
    assert db.smembers(keys.paused) == {b"q"}
    assert cli("pause", "a b").exit_code == 2


def test_a_queue_that_no_server_serves_is_paused_with_a_warning(
    cli: Cli, keys: Keys, db: redis.Redis
) -> None:
    register_busy(db, keys, "web:1:a")
    paused = cli("pause", "q", "qq", "nosuch")
    assert paused.exit_code == 0
    assert paused.stdout == "q is paused\nqq is paused\nnosuch is paused\n"
    assert paused.stderr == (
        "No server serves qq; did you mean q?\nNo server serves nosuch; `pyworkers queues` shows all.\n"
    )
    assert db.smembers(keys.paused) == {b"q", b"qq", b"nosuch"}
    assert json.loads(cli("pause", "nosuch", "--json").stdout) == {
        "action": "pause",
        "done": 0,
        "changed": [],
        "unserved": ["nosuch"],
    }


def test_the_history_of_the_counters(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    lines = cli("stats", "--history", "2").stdout.splitlines()
    assert lines[-3].split() == ["day", "processed", "failed"]
    assert lines[-1].split()[1:] == ["0", "0"]
    assert len(json.loads(cli("stats", "--history", "2", "--json").stdout)["history"]) == 2


@pytest.mark.parametrize(("group", "key"), [("scheduled", "schedule"), ("retries", "retry")])
def test_jobs_get_another_time(cli: Cli, db: redis.Redis, keys: Keys, group: str, key: str) -> None:
    zset = getattr(keys, key)
    db.zadd(zset, {raw_job(f"j{n}", **{"class": "A" if n else "B"}): 1000.0 + n for n in range(3)})
    assert cli(group, "reschedule", "j0", "--at", "2000").stdout == "rescheduled 1 job\n"
    before = time.time()
    assert cli(group, "reschedule", "--class", "A", "--in", "2h", "--yes").exit_code == 0
    scores = [float(db.zscore(zset, raw) or 0) for raw in as_list(db.zrange(zset, 0, -1))]
    assert scores[0] == 2000.0
    assert all(before + 7200 <= score <= time.time() + 7200 for score in scores[1:])
    for words, text in (((), "either --in or --at"), (("--in", "1h", "--at", "2000"), "exclude each other")):
        result = cli(group, "reschedule", "j0", *words)
        assert result.exit_code == 2 and text in result.stderr


# Editing


@pytest.mark.parametrize("group", ["jobs q", "scheduled", "retries", "dead"])
def test_a_job_is_edited_by_its_id(cli: Cli, keys: Keys, db: redis.Redis, group: str) -> None:
    places = {"jobs q": keys.queue("q"), "scheduled": keys.schedule, "retries": keys.retry, "dead": keys.dead}
    key, words = places[group], group.split()
    if group == "jobs q":
        db.lpush(key, raw_job("j"))
    else:
        db.zadd(key, {raw_job("j"): time.time() + 60})
    assert cli(*words, "edit", "j", '["new"]').stdout == "edited j\n"
    [raw] = db.lrange(key, 0, -1) if group == "jobs q" else db.zrange(key, 0, -1)
    assert json.loads(as_bytes(raw))["args"] == ["new"]
    copied = cli(*words, "edit", "j", "--copy", "--in", "1h", "--json")
    copy = json.loads(copied.stdout)
    assert (copy["action"], copy["done"]) == ("copy", 1)
    assert copy["jid"] in jids(db, keys.schedule)
    assert "j" in jids(db, key)
    assert cli(*words, "edit", "j", "--at", "2000").exit_code == 0
    target = keys.retry if group == "retries" else keys.schedule
    assert any(json.loads(as_bytes(member))["jid"] == "j" for member in db.zrangebyscore(target, 2000, 2000))
    [edited, copy, first] = [
        line.split()[3:] for line in cli("audit", "--utc").stdout.splitlines()[1:] if "job." in line
    ]
    assert (edited, first) == (["job.edit", "j", "done"], ["job.edit", "j", "done"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["gone", "[]"], 1, "no such job: gone"),
        (["j"], 2, "Pass the new arguments as JSON"),
        (["j", "--in", "1h", "--at", "2000"], 2, "--in and --at exclude each other."),
        (["j", '"text"'], 2, "must be a JSON list"),
    ],
)
def test_an_edit_that_is_not_done(
    cli: Cli, keys: Keys, db: redis.Redis, words: list[str], code: int, said: str
) -> None:
    db.lpush(keys.queue("q"), raw_job("j"))
    result = cli("jobs", "q", "edit", *words)
    assert (result.exit_code, said in result.stderr) == (code, True)
    assert db.lrange(keys.queue("q"), 0, -1) == [raw_job("j")]


@pytest.mark.parametrize(
    ("kept", "lost", "said"),
    [
        (
            2_000,
            10_000,
            "2,000 of them back, for ten minutes\n10,000 jobs cannot be put back: ",
        ),
        (0, 1, "1 job cannot be put back: there was no room to keep them"),
    ],
)
def test_deleted_jobs_that_are_not_kept(
    kept: int, lost: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    deletions = {"7c1e": DeletionNumbers(1.0, kept, lost)}
    tell_undo(deletions)
    found = capsys.readouterr().err
    assert said in found
    assert ("pyworkers undo 7c1e" in found) == bool(undo_facts(deletions)) == bool(kept)


def test_deleted_jobs_of_which_redis_does_not_say_whether_it_has_kept_them(
    cli: Cli, keys: Keys, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.zadd(keys.dead, {raw_job("a"): 1, raw_job("b"): 2})
    with monkeypatch.context() as patch:
        patch.setattr(undo, "deletions", lambda _keys: one("NO.SUCH.COMMAND", read=dict))
        deleted = cli("dead", "delete", "a")
        cleared = cli("dead", "clear", "--yes", "--json")
    assert (deleted.exit_code, deleted.stdout) == (0, "deleted 1 job\n")
    word = deleted.stderr.split()[2].rstrip("`")
    assert deleted.stderr == f"`pyworkers undo {word}` puts the kept ones back, for ten minutes\n"
    [other] = json.loads(cleared.stdout)["undo"]
    assert [cli("undo", id).stdout for id in (word, other)] == ["1 job put back\n"] * 2


def test_deleted_jobs_are_put_back(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("a"): 1, raw_job("b"): 2})
    deleted = cli("dead", "delete", "a")
    word = deleted.stderr.split()[2].rstrip("`")
    assert deleted.stderr == f"`pyworkers undo {word}` puts them back, for ten minutes\n"
    assert cli("undo", word).stdout == "1 job put back\n"
    assert jids(db, keys.dead) == {"a", "b"}
    [undo] = json.loads(cli("dead", "clear", "--yes", "--json").stdout)["undo"]
    audit = json.loads(cli("audit", "--json").stdout)
    assert [line.get("undo") for line in audit] == [undo, None, word]
    result = cli("undo", undo, "--json")
    assert json.loads(result.stdout) == {"action": "undo", "done": 2, "deletion": undo}
    again = cli("undo", undo)
    assert (again.exit_code, again.stderr) == (
        1,
        "Nothing to put back: ten minutes are over, or it was done before\n",
    )
