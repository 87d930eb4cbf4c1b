"""Key names, which other programs rely on, and the rule for queue names."""

from __future__ import annotations

import pytest

from pyworkers.protocol.keys import Keys, check_queue_name, literal


@pytest.mark.parametrize("namespace", ["", "app:", "{app}:"])
def test_the_keys_of_sidekiq_and_go_workers(namespace: str) -> None:
    keys = Keys(namespace)
    found = [keys.queues, keys.schedule, keys.retry, keys.dead, keys.goretry, keys.paused]
    assert found == [
        f"{namespace}{name}" for name in ("queues", "schedule", "retry", "dead", "goretry", "paused")
    ]
    assert keys.queue("mail") == f"{namespace}queue:mail"
    assert keys.inprogress("mail", "host:1:abc") == f"{namespace}queue:mail:host:1:abc:inprogress"
    assert keys.stat("processed") == f"{namespace}stat:processed"
    assert keys.stat("failed", "2026-11-21") == f"{namespace}stat:failed:2026-11-21"


def test_what_pyworkers_adds_is_named_after_it() -> None:
    keys = Keys("app:")
    found = [keys.owners, keys.lease("id"), keys.tombstone("id"), keys.cron_slot("sweep", 60)]
    assert all(key.startswith("app:pyworkers:") for key in found)
    assert len(set(found)) == 4
    assert keys.turn(keys.schedule) == "app:pyworkers:turn:schedule"
    assert keys.cron_slot("sweep", 60) != keys.cron_slot("sweep", 120)


def test_a_pattern_that_matches_one_text_alone() -> None:
    assert literal("a*[b-c]?^\\:{d}") == r"a\*\[b-c\]\?^\\:{d}"


@pytest.mark.parametrize("name", ["default", "mail", "a:b", "é", "x" * 128, "queues", "backup", "inprogress"])
def test_names_that_can_be_queues(name: str) -> None:
    check_queue_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a b",
        "a\n",
        "\t",
        "a|b",
        "x" * 129,
        "queue:x",
        "backup::x",
        "x:inprogress",
        "a\x00",
        "a\x7f",
        "\ud800",
    ],
)
def test_names_that_cannot_be_queues(name: str) -> None:
    with pytest.raises(ValueError, match="a queue name has 1 to 128 characters"):
        check_queue_name(name)


@pytest.mark.parametrize("name", [None, 5, b"x", ["x"]])
def test_what_is_no_text_is_no_queue(name: object) -> None:
    with pytest.raises(ValueError, match="cannot be a queue"):
        check_queue_name(name)
