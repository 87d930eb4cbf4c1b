"""Thresholds that people set: one hash, which replaces those of the configuration; and what others write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis

from pyworkers.api import Problem, Severity, ThresholdSet
from pyworkers.api.causes import Cause
from pyworkers.api.stats import read_stats
from pyworkers.api.thresholds import HIGH, problems_above
from pyworkers.config.thresholds import Threshold, in_force
from pyworkers.errors import BadArgumentError, StoreError
from pyworkers.protocol.keys import Keys
from tests.helpers.records import raw_job
from tests.store.conftest import Cli, Run


@pytest.fixture
def thresholds(redis_url: str, namespace: str) -> ThresholdSet:
    return ThresholdSet(redis_url, namespace=namespace)


def test_a_threshold_is_set_changed_and_removed(
    thresholds: ThresholdSet, run_work: Run, keys: Keys, db: redis.Redis
) -> None:
    assert thresholds.set(" mail*  oldest>60") and not thresholds.set("mail* oldest > 60")
    assert thresholds.set("mail* oldest > 300") and thresholds.set("waiting > 0")
    assert db.hgetall(keys.thresholds) == {b"mail* oldest": b"300", b"waiting": b"0"}
    assert list(thresholds) == [Threshold("mail*", "oldest", 300, True), Threshold("", "waiting", 0, True)]
    assert run_work(read_stats(keys)).thresholds == list(thresholds)
    assert thresholds.remove("mail* oldest") and thresholds.remove("waiting > 7")
    assert not thresholds.remove("waiting") and not thresholds.remove("x")
    assert not db.exists(keys.thresholds)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be like"),
        ("busy > 1", "must be like"),
        (f"waiting > {'9' * 5000}", "must be like"),
        ("\ud800 waiting > 1", "of UTF-8"),
        (f"{'m' * 193} waiting > 1", "at most 200 bytes"),
        ("x" * 2**20, "must be like"),
    ],
)
def test_any_other_text_is_refused(thresholds: ThresholdSet, text: str, words: str) -> None:
    with pytest.raises(BadArgumentError, match=words) as raised:
        thresholds.set(text)
    assert len(str(raised.value)) < 600 and list(thresholds) == []


def test_fifty_are_set_at_most(thresholds: ThresholdSet) -> None:
    assert all(thresholds.set(f"q{number} waiting > 1") for number in range(50))
    with pytest.raises(BadArgumentError, match="50 thresholds are set, which is the most\nremove one"):
        thresholds.set("another waiting > 1")
    assert thresholds.set("q7 waiting > 2")


def test_what_is_no_threshold_is_left_out(
    thresholds: ThresholdSet, run_work: Run, keys: Keys, db: redis.Redis
) -> None:
    foreign: dict[bytes | str, bytes | str] = {
        b"\xff waiting": "1",
        b"\xed\xa0\x80 waiting": "1",
        "a waiting": "9" * 5000,
        "b waiting": b"\xff",
        "c waiting": "-1",
        " waiting": "1",
        "d  waiting": "1",
        "e": "f waiting > 1",
        "g waiting > 1 waiting": "x",
        f"{'h' * 300} waiting": "1",
        "i" * 2**20: "1",
        "j waiting": "1" + " " * 2**20,
        "": "",
        "oldest": "5",
    }
    db.hset(keys.thresholds, mapping=foreign)  # type: ignore[arg-type]
    assert list(thresholds) == [Threshold("", "oldest", 5, True)]
    assert thresholds.set("a waiting > 3") and len(list(thresholds)) == 2
    db.hset(keys.thresholds, mapping={f"q{number} waiting": "1" for number in range(100)})
    assert len(list(thresholds)) == len(run_work(read_stats(keys)).thresholds) == 50


def test_a_key_of_another_type_has_none(
    thresholds: ThresholdSet, run_work: Run, keys: Keys, db: redis.Redis
) -> None:
    db.set(keys.thresholds, "waiting > 1")
    db.lpush(keys.queue("mail"), raw_job("a"))
    db.sadd(keys.queues, "mail")
    stats = run_work(read_stats(keys))
    assert (stats.enqueued, stats.thresholds, list(thresholds)) == (1, [], [])
    with pytest.raises(StoreError, match="WRONGTYPE"):
        thresholds.set("waiting > 1")


def test_those_that_are_set_replace_those_of_the_configuration() -> None:
    texts = (
        "waiting > 1000",
        "mail waiting > 5",
        "mail waiting > 9",
        "mail oldest > 60",
        "mail* waiting > 7",
    )
    file = list(map(Threshold.parse, texts))
    own = [Threshold("mail", "waiting", 3, True), Threshold("", "failed", 1, True)]
    assert in_force(file, []) == tuple(file)
    assert in_force(file, own) == (file[0], file[3], file[4], *own)


def test_a_problem_says_where_its_number_is_set(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    for queue in ("a", "b"):
        db.sadd(keys.queues, queue)
        db.lpush(keys.queue(queue), *map(raw_job, "1234"))
    stats = run_work(read_stats(keys))

    def problems(*thresholds: Threshold) -> list[Problem]:
        return list(problems_above(thresholds, stats, None))

    file, page = "set in [web] thresholds of the configuration", "set on the page Thresholds"
    lower, higher = Threshold("?", "waiting", 1), Threshold("a", "waiting", 3, True)
    assert [(one.queue, one.fix) for one in problems(lower)] == [("a", file), ("b", file)]
    # The highest one that is exceeded is shown.
    both = problems(lower, higher)
    assert [(one.message[-7:], one.fix) for one in both] == [("above 3", page), ("above 1", file)]
    assert Cause(both).fix == f"{file}, and on the page Thresholds"
    assert Cause(both[:1]).fix == page
    assert problems(Threshold("", "waiting", 7, True)) == [
        Problem(Severity.ERROR, f"{HIGH}:waiting", "the waiting jobs: above 7", page)
    ]


def test_the_commands_show_both_kinds_and_change_one(
    cli: Cli, db: redis.Redis, keys: Keys, tmp_path: Path
) -> None:
    file = tmp_path / "workers.toml"
    file.write_text('[web]\nthresholds = ["waiting > 9", "mail* oldest > 60"]\n')

    def run(*words: str) -> str:
        return cli("thresholds", *words, "--config", str(file)).output

    assert "The threshold mail*  oldest>300 is set" in run("set", "mail*  oldest>300")
    assert run("list").splitlines() == [
        "threshold           set in",
        "waiting > 9         configuration",
        "mail* oldest > 60   configuration, replaced",
        "mail* oldest > 300  dashboard",
    ]
    own = {"match": "mail*", "measure": "oldest", "above": 300, "origin": "dashboard", "replaced": False}
    assert json.loads(run("--json"))[2] == {"threshold": "mail* oldest > 300", **own}
    assert "is set already" in run("set", "mail* oldest > 300")
    removed = {"action": "remove", "done": 1, "threshold": "mail* oldest"}
    assert json.loads(run("remove", "mail* oldest", "--json")) == removed
    assert cli("thresholds", "remove", "mail* oldest").exit_code == 1
    assert "must be like" in cli("thresholds", "set", "busy > 1").output
    assert "There are no thresholds." in cli("thresholds").output
    file.write_text('[redis.archive]\nurl = "redis://127.0.0.1:1/0"\n')
    for words in ([], ["set", "waiting > 5"], ["remove", "waiting"]):
        refused = cli("thresholds", *words, "--redis", "archive", "--config", str(file))
        assert (refused.exit_code, "leave out --redis" in refused.output) == (2, True)
    assert "threshold.remove" in cli("audit").output
