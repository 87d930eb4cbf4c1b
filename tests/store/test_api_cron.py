"""The cron entries through the API and the command line, against real servers."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
import redis

from pyworkers.api import CronSet, Queue
from pyworkers.api.cronjob import read_cron_page
from pyworkers.config.cron_entries import dump
from pyworkers.errors import BadArgumentError
from pyworkers.protocol import envelope
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.envelope import encode
from pyworkers.protocol.flow import runs
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import script
from pyworkers.store.flow.removal import written
from tests.helpers.replies import as_list
from tests.store.conftest import Cli


class Bench:
    """One Redis with its keys, seen through the API."""

    def __init__(self, url: str, connection: redis.Redis, keys: Keys) -> None:
        self.keys, self.redis = keys, connection
        self.entries = CronSet(url, namespace=keys.namespace)

    def declare(self, *entries: CronEntry) -> None:
        """As a server does it that lives."""
        rows = [json.loads(dump(entry)) | {"origin": entry.origin} for entry in entries]
        self.redis.hset(self.keys.owners, "host:1:x", "[]")
        self.redis.set(self.keys.cron_declared("host:1:x"), encode(rows))

    def jobs(self, queue: str = "default") -> list[dict[str, object]]:
        return [envelope.decode(raw) for raw in as_list(self.redis.lrange(self.keys.queue(queue), 0, -1))]

    def last(self, name: str) -> int | None:
        stored = self.redis.hget(self.keys.cron_last, name)
        return None if stored is None else int(stored)


@pytest.fixture
def bench(redis_url: str, db: redis.Redis, keys: Keys) -> Bench:
    return Bench(redis_url, db, keys)


def in_code(name: str = "coded", **fields: object) -> CronEntry:
    values = {"schedule": "*/5 * * * *", "queue": "mail", "job_class": "Sweep", **fields}
    return CronEntry(name, **values)  # type: ignore[arg-type]


def test_an_entry_is_added_found_and_removed(bench: Bench) -> None:
    before = int(time.time())
    options = {"tags": ["a"], "backtrace": True}
    bench.entries.add(
        "poll", "every 30s", "Poll", [1, {"a": "ü"}], queue="mail", timezone="Europe/Paris", misfire="all",
        grace=60, retry=3, options=options,
    )  # fmt: skip
    (job,) = bench.entries
    assert job.entry == CronEntry(
        "poll", "every 30s", "mail", "Poll", (1, {"a": "ü"}), "Europe/Paris", "all", 60, 3, options
    )
    assert (job.name, job.origin, job.state) == ("poll", "run time", "active")
    assert job.last is not None and before <= job.last <= time.time()
    assert job.next_slots(3, 90.0) == [120, 150, 180]
    assert bench.redis.get(bench.keys.cron_version) is not None
    bench.entries.remove("poll")
    assert list(bench.entries) == []
    assert bench.last("poll") is None
    with pytest.raises(BadArgumentError, match="there is no run-time entry 'poll'"):
        bench.entries.remove("poll")


def test_each_change_is_a_new_version(bench: Bench) -> None:
    versions = []
    for change in (
        lambda: bench.entries.add("poll", "@daily", "Poll"),
        lambda: bench.entries.change("poll", queue="mail"),
        lambda: bench.entries.pause("poll"),
        lambda: bench.entries.resume("poll"),
        lambda: bench.entries.remove("poll"),
    ):
        change()
        versions.append(bench.redis.get(bench.keys.cron_version))
    assert len(set(versions)) == 5


def test_a_name_is_taken_once(bench: Bench) -> None:
    bench.entries.add("poll", "@daily", "Poll")
    with pytest.raises(BadArgumentError, match="a cron entry 'poll' exists already"):
        bench.entries.add("poll", "@hourly", "Other")
    assert [job.entry.schedule for job in bench.entries] == ["@daily"]
    bench.entries.add("poll", "@hourly", "Other", replace=True)
    assert [job.entry.job_class for job in bench.entries] == ["Other"]
    bench.entries.add("new", "@hourly", "Other", replace=True)
    assert len(list(bench.entries)) == 2


def test_a_changed_entry_fires_nothing_for_the_past(bench: Bench) -> None:
    bench.entries.add("poll", "@daily", "Poll", [1], retry=3)
    bench.redis.hset(bench.keys.cron_last, "poll", 1000)
    changed = bench.entries.change("poll", schedule="@hourly", grace=5, args=[2])
    assert (changed.schedule, changed.grace_s, changed.args, changed.retry) == ("@hourly", 5, (2,), 3)
    assert [job.entry for job in bench.entries] == [changed]
    last = bench.last("poll")
    assert last is not None and last > time.time() - 60


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": "61 * * * *"}, "schedule: '61 * * * *' is not a cron line"),
        ({"timezone": "Mars/Base"}, "timezone: 'Mars/Base' is not a time zone"),
        ({"queue": "a b"}, "queue: 'a b' cannot be a queue"),
        ({"name": ""}, "name: must be printable"),
        ({"job_class": "a\nb"}, "class: must be printable"),
        ({"args": [float("nan")]}, "args"),
        ({"args": [{1: 2}]}, "has the key 1; JSON keys are strings"),
        ({"misfire": "twice"}, "'twice' is not a misfire policy"),
        ({"grace": -1}, "a grace of -1"),
        ({"retry": "often"}, "retry must be"),
        ({"options": {"jid": "x", "at": 5}}, "at is not an option"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_with_the_reason(
    bench: Bench, fields: dict[str, object], message: str
) -> None:
    values = {"name": "poll", "schedule": "@daily", "job_class": "Poll", **fields}
    with pytest.raises(BadArgumentError) as caught:
        bench.entries.add(**values)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert list(bench.entries) == []


def test_a_change_of_what_is_not_there_or_cannot_be_is_refused(bench: Bench) -> None:
    bench.entries.add("poll", "@daily", "Poll")
    for name, fields in (
        ("none", {}),
        ("poll", {"colour": 1}),
        ("poll", {"schedule": "x"}),
        ("poll", {"args": 5}),
    ):
        with pytest.raises(BadArgumentError):
            bench.entries.change(name, **fields)
    assert [job.entry.schedule for job in bench.entries] == ["@daily"]


def test_entries_of_code_and_configuration_are_shown_and_never_overwritten(bench: Bench) -> None:
    bench.declare(in_code("coded", retry=2), in_code("filed", origin="configuration"))
    assert [(job.name, job.origin) for job in bench.entries] == [
        ("coded", "application"),
        ("filed", "configuration"),
    ]
    for name in ("coded", "filed"):
        with pytest.raises(BadArgumentError, match=r"a cron entry .* exists already"):
            bench.entries.add(name, "@daily", "Other", replace=True)
        with pytest.raises(BadArgumentError, match="no run-time entry"):
            bench.entries.change(name, schedule="@daily")
        with pytest.raises(BadArgumentError, match="is not a run-time entry"):
            bench.entries.remove(name)
    assert bench.redis.exists(bench.keys.cron_entries) == 0


def test_a_run_time_entry_whose_name_is_declared_later_waits_unchanged(bench: Bench) -> None:
    bench.entries.add("coded", "@daily", "Mine")
    bench.declare(in_code("coded"))
    assert [(job.origin, job.state) for job in bench.entries] == [
        ("application", "active"),
        ("run time", "shadowed"),
    ]
    found = bench.entries.find("coded")
    assert found is not None and found.entry.job_class == "Sweep"
    bench.redis.delete(bench.keys.owners)
    assert [(job.entry.job_class, job.state) for job in bench.entries] == [("Mine", "active")]


def test_an_entry_is_paused_and_resumed_wherever_it_was_declared(bench: Bench) -> None:
    bench.declare(in_code("coded"))
    bench.entries.add("poll", "@daily", "Poll")
    for name in ("coded", "poll"):
        assert [bench.entries.pause(name), bench.entries.pause(name)] == [True, False]
    assert {job.state for job in bench.entries} == {"paused"}
    bench.redis.hset(bench.keys.cron_last, "poll", 1000)
    for name in ("coded", "poll"):
        assert [bench.entries.resume(name), bench.entries.resume(name)] == [True, False]
    assert {job.state for job in bench.entries} == {"active"}
    last = bench.last("poll")
    assert last is not None and last > time.time() - 60
    with pytest.raises(BadArgumentError, match="there is no cron entry 'none'"):
        bench.entries.pause("none")


def test_a_removed_entry_leaves_no_pause_behind(bench: Bench) -> None:
    bench.entries.add("poll", "@daily", "Poll")
    bench.entries.pause("poll")
    bench.entries.remove("poll")
    bench.entries.add("poll", "@daily", "Poll")
    assert [job.state for job in bench.entries] == ["active"]


def test_a_triggered_job_is_that_of_the_entry_and_uses_up_no_slot(bench: Bench) -> None:
    bench.declare(in_code("coded", args=(7,), retry=False))
    bench.entries.pause("coded")
    before = int(time.time())
    jid = bench.entries.trigger("coded")
    (job,) = bench.jobs("mail")
    assert (job["jid"], job["class"], job["args"], job["retry"]) == (jid, "Sweep", [7], False)
    about = job["cron"]
    assert isinstance(about, dict)
    assert (about["name"], about["triggered"]) == ("coded", True)
    assert before <= about["slot"] <= time.time()
    assert bench.redis.smembers(bench.keys.queues) == {b"mail"}
    assert list(bench.redis.scan_iter(f"{bench.keys.namespace}pyworkers:cron:*")) == []


def test_an_entry_of_another_program_is_left_alone(bench: Bench) -> None:
    bench.redis.hset(bench.keys.cron_entries, mapping={"bad": "no json", "worse": '{"name":5}'})
    bench.redis.hset(bench.keys.owners, "host:1:x", "[]")
    bench.redis.set(bench.keys.cron_declared("host:1:x"), '[{"name":"x"},{"origin":"sky","colour":1}]')
    bench.entries.add("poll", "@daily", "Poll")
    assert [job.name for job in bench.entries] == ["poll"]


# The command line


def test_the_commands_in_the_order_of_a_day(bench: Bench, cli: Cli) -> None:
    assert cli("cron", "list").output.startswith("No cron entries")
    added = cli(
        "cron", "add", "nightly", "0 3 * * *", "Sweep", "[7]", "-q", "mail", "--timezone", "Europe/Paris"
    )
    assert added.exit_code == 0, added.output
    assert "nightly fires next" in added.output and "03:00:00+0" in added.output
    listed = cli("cron").output.splitlines()
    assert " ".join(listed[0].split()) == "name schedule time zone job queue origin state next"
    assert listed[1].split()[:5] == ["nightly", "0", "3", "*", "*"]
    assert "run time" in listed[1] and "active" in listed[1] and "in " in listed[1]
    assert cli("cron", "pause", "nightly").output == "nightly is paused\n"
    assert cli("cron", "pause", "nightly").output == "nightly is paused already\n"
    assert "paused" in cli("cron", "list").output
    assert cli("cron", "resume", "nightly").output == "nightly fires again\n"
    assert cli("cron", "resume", "nightly").output == "nightly was not paused\n"
    jid = cli("cron", "trigger", "nightly").output.strip()
    assert [job["jid"] for job in bench.jobs("mail")] == [jid]
    assert cli("cron", "remove", "nightly").output == "nightly is removed\n"
    missing = cli("cron", "remove", "nightly")
    assert missing.exit_code == 1
    assert "there is no run-time entry 'nightly'" in missing.stderr


def test_lists_for_programs(bench: Bench, cli: Cli) -> None:
    bench.entries.add("poll", "every 30s", "Poll", queue="mail")
    before = time.time()
    (found,) = json.loads(cli("cron", "list", "--json").output)
    wanted = {"name": "poll", "schedule": "every 30s", "class": "Poll", "queue": "mail", "grace": 300.0}
    assert found.items() >= (wanted | {"origin": "run time", "state": "active"}).items()
    assert before < found["next"] <= time.time() + 30
    assert found["next"] % 30 == 0
    added = cli("cron", "add", "other", "@daily", "Other", "--grace", "1h30m", "--retry", "false", "--json")
    assert {key: json.loads(added.output)["entry"][key] for key in ("grace", "retry")} == {
        "grace": 5400.0,
        "retry": False,
    }


def test_the_next_slots_of_one_entry_and_of_all(bench: Bench, cli: Cli) -> None:
    bench.entries.add("poll", "every 30s", "Poll")
    bench.entries.add("daily", "@daily", "Daily", timezone="Asia/Kolkata")
    shown = cli("cron", "next", "daily", "-n", "2").output.splitlines()
    assert len(shown) == 2
    assert "00:00:00+05:30 (in " in shown[0] and shown[0].endswith(")  daily")
    exact = cli("cron", "next", "daily", "-n", "2", "--utc").output.splitlines()
    assert [line.partition("T")[2] for line in exact] == ["18:30:00.000Z  daily"] * 2
    rows = json.loads(cli("cron", "next", "-n", "4", "--json").output)
    assert [row["name"] for row in rows].count("poll") >= 3
    assert rows == sorted(rows, key=lambda row: row["slot"])
    assert datetime.fromtimestamp(rows[0]["slot"], UTC).second % 30 == 0
    bench.entries.pause("poll")
    assert {row["name"] for row in json.loads(cli("cron", "next", "--json").output)} == {"daily"}
    assert len(json.loads(cli("cron", "next", "poll", "--json").output)) == 5


def test_what_was_done_to_an_entry_is_said_to_programs(bench: Bench, cli: Cli) -> None:
    bench.entries.add("poll", "every 30s", "Poll", queue="mail")
    for action, done in (("pause", 1), ("pause", 0), ("resume", 1), ("resume", 0)):
        said = json.loads(cli("cron", action, "poll", "--json").output)
        assert said == {"action": action, "done": done, "name": "poll"}
    said = json.loads(cli("cron", "trigger", "poll", "--json").output)
    assert [job["jid"] for job in bench.jobs("mail")] == [said["jid"]]
    removed = json.loads(cli("cron", "remove", "poll", "--json").output)
    assert removed == {"action": "remove", "done": 1, "name": "poll"}


def test_a_name_without_an_entry_has_no_next_slot(cli: Cli) -> None:
    assert cli("cron", "next", "none").exit_code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "x", "61 * * * *", "Job"], "'61 * * * *' is not a cron line"),
        (["add", "x", "@daily", "Job", "{}"], "must be a JSON list"),
        (["add", "x", "@daily", "Job", "--timezone", "Mars/Base"], "'Mars/Base' is not a time zone"),
        (["add", "x", "@daily", "Job", "--misfire", "twice"], "'twice' is not one of"),
        (["add", "x", "@daily", "Job", "-q", "a b"], "cannot be a queue"),
        (["add", "taken", "@daily", "Job"], "a cron entry 'taken' exists already"),
    ],
)
def test_a_bad_entry_is_a_usage_error(bench: Bench, cli: Cli, words: list[str], message: str) -> None:
    bench.entries.add("taken", "@daily", "Job")
    refused = cli("cron", *words)
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.split())
    assert [job.name for job in bench.entries] == ["taken"]


# The runs


def test_a_triggered_run_is_noted_with_its_push(bench: Bench, cli: Cli) -> None:
    bench.entries.add("poll", "@daily", "Poll", queue="mail")
    assert cli("cron", "runs", "poll").output == "poll has not fired yet\n"
    jid = bench.entries.trigger("poll")
    job = bench.entries.find("poll")
    assert job is not None
    (run,) = job.runs
    assert (run.jid, run.state, run.triggered, run.queue, run.duration_s) == (
        jid,
        "waiting",
        True,
        "mail",
        None,
    )
    assert job.as_dict()["last_run"] == run.as_dict()
    assert json.loads(cli("cron", "runs", "poll", "--json").output) == [run.as_dict()]
    assert cli("cron", "runs", "poll").output.splitlines()[1].split()[-3:] == ["waiting", "(triggered)", jid]
    assert bench.redis.ttl(bench.keys.cron_runs("poll")) > 399 * 86_400
    bench.entries.remove("poll")
    assert not bench.redis.exists(bench.keys.cron_runs("poll"))


def test_a_run_whose_job_is_deleted_is_cancelled(bench: Bench, redis_url: str) -> None:
    bench.entries.add("poll", "@daily", "Poll")
    bench.entries.trigger("poll")
    (queued,) = Queue("default", redis_url, namespace=bench.keys.namespace)
    assert queued.delete()
    assert [run.state for job in bench.entries for run in job.runs] == ["cancelled"]


def test_the_fifty_latest_runs_are_kept(bench: Bench) -> None:
    bench.entries.add("poll", "@daily", "Poll")
    earlier = {f"{slot} j{slot}": '{"state":"done"}' for slot in range(100, 170)}
    bench.redis.hset(bench.keys.cron_runs("poll"), mapping=earlier)  # type: ignore[arg-type]
    jid = bench.entries.trigger("poll")
    (job,) = bench.entries
    assert [run.jid for run in job.runs] == [jid, *(f"j{slot}" for slot in range(169, 120, -1))]
    assert bench.redis.hlen(bench.keys.cron_runs("poll")) == 50


@pytest.mark.parametrize(
    "value", ["", "[]", "[1]", "7", '{"state":5}', '{"state":"x"}', "{", "[" * 5000, b"\xff"]
)
def test_runs_of_another_program_are_left_out(bench: Bench, value: str | bytes) -> None:
    bench.entries.add("poll", "@daily", "Poll")
    key = bench.keys.cron_runs("poll")
    bench.redis.hset(key, mapping={"5 j": value, "x": "{}", "05 j": '{"state":"done"}', " ": "", "7 ": "{}"})
    assert [job.runs for job in bench.entries] == [[]]
    # The facts that follow replace it.
    ended = runs.effects(Ended(Ending.DONE, {"cron": {"name": "poll", "slot": 5}}, "j", "q", "Poll", 9.0))
    names, args = written(bench.keys, [(1, effect) for effect in ended])
    bench.entries._admin.run(script("removal/apply", names, args, lambda _: None, bench.keys.namespace))
    (job,) = bench.entries
    assert [(run.slot, run.jid, run.state, run.finished_at) for run in job.runs] == [(5, "j", "done", 9.0)]


def test_a_key_of_another_type_does_not_prevent_a_run(bench: Bench) -> None:
    bench.entries.add("poll", "@daily", "Poll")
    bench.redis.set(bench.keys.cron_runs("poll"), "x")
    assert bench.entries.trigger("poll") == bench.jobs()[0]["jid"]
    assert [job.runs for job in bench.entries] == [[]]


def test_a_page_of_entries_has_the_number_of_all(bench: Bench) -> None:
    for number in range(5):
        bench.entries.add(f"poll{number}", "@daily", "Poll")
    page = bench.entries._admin.run(read_cron_page(bench.keys, 1, 2))
    assert (page.total, [job.name for job in page.jobs]) == (5, ["poll1", "poll2"])


@pytest.mark.parametrize("text", ["{", "7", '[5,{"origin":[]},{"origin":"application"}]', "[" * 100_000])
def test_entries_of_another_program_are_left_out(bench: Bench, text: str) -> None:
    bench.redis.set(bench.keys.cron_declared("host:1:x"), text)
    bench.redis.hset(bench.keys.owners, "host:1:x", "[]")
    bench.redis.hset(bench.keys.cron_entries, "deep", "[" * 100_000)
    bench.redis.hset(bench.keys.cron_last, "poll", "nan")
    bench.redis.hset(bench.keys.cron_paused + "x", "a", "b")
    bench.entries.add("poll", "@daily", "Poll")
    assert [(job.name, job.state) for job in bench.entries] == [("poll", "active")]
