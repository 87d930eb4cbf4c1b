"""How a server describes its groups: to Sidekiq's Web UI, to our own commands, and in /metrics."""

from __future__ import annotations

import json
import socket

import pytest

from pyworkers.server.heartbeat.facts import Facts, described, info, listed_workers
from pyworkers.server.incarnation import make_identity
from pyworkers.server.plan import Group
from pyworkers.server.pool.worker import WorkerFacts
from pyworkers.server.running import Running

GROUPS = {
    "web": Group("web", {"critical": 5, "low": 1}, False, 50, 4, "async"),
    "even": Group("even", {"a": 1, "b": 1}, False, 10, 10, "process"),
    "post": Group("post", {"mail": 1, "sms": 1}, True, 3, 3, "process"),
    "slow": Group("slow", {"slow": 1}, True, 2, 2, "process"),
    "calls": Group("calls", {"calls": 1}, True, 8, 2, "thread"),
}
RUNNING = [
    Running(queue, 1, number, b"{}", 1.0)
    for number, queue in enumerate(("critical", "low", "mail", "low", "dropped"))
]
STAFF = [
    WorkerFacts("web", 7, "idle", 1.5, 3),
    WorkerFacts("web", 8, "busy", 1.5, 0),
    WorkerFacts("web", 9, "idle", 1.5, 0),
    WorkerFacts("dropped", 10, "leaving", 1.5, 0),
]
FACTS = Facts("host:1:a", GROUPS, RUNNING, False, [], {}, STAFF, {"web": 2})


def test_sidekiq_sees_a_capsule_for_each_group_and_the_concurrency_of_all() -> None:
    about = json.loads(info(FACTS, 1.0))
    assert about["concurrency"] == 73
    assert about["queues"] == ["critical", "low", "a", "b", "mail", "sms", "slow", "calls"]
    # Sidekiq's Busy page shows weights above 0, and the queues of a strict capsule by name alone.
    assert about["weights"] == [
        {"critical": 5, "low": 1}, {"a": 1, "b": 1}, {"mail": 0, "sms": 0}, {"slow": 0}, {"calls": 0}
    ]  # fmt: skip
    assert list(about["capsules"]) == list(GROUPS)
    assert [capsule["mode"] for capsule in about["capsules"].values()] == [
        "weighted", "random", "strict", "strict", "strict"
    ]  # fmt: skip
    assert about["capsules"]["web"]["concurrency"] == 50


def test_a_label_names_each_group_whose_queues_share_workers_or_whose_jobs_share_a_process() -> None:
    assert json.loads(info(FACTS, 1.0))["labels"] == [
        "web: async, 50 in 4", "even: process, 10 in 10", "post: process, 3 in 3", "calls: thread, 8 in 2"
    ]  # fmt: skip


def test_running_jobs_count_in_the_group_of_their_queue() -> None:
    assert FACTS.busy == {"web": 3, "even": 0, "post": 1, "slow": 0, "calls": 0}
    assert described(FACTS)["web"] == {
        "queues": {"critical": 5, "low": 1},
        "strict": False,
        "mode": "async",
        "processes": 4,
        "concurrency": 50,
        "busy": 3,
        "ordered": False,
        "workers": {"idle": 2, "busy": 1},
        "restarts": 2,
    }


def test_many_workers_are_listed_only_for_a_viewer() -> None:
    memory = {7: 4096}
    assert json.loads(listed_workers(STAFF[:2], lambda pid: memory.get(pid, 0), watched=False)) == [
        ["web", 7, "idle", 4096, 3, 1],
        ["web", 8, "busy", 0, 0, 1],
    ]
    assert listed_workers(STAFF * 9, lambda _: 0, watched=False) == ""
    assert len(json.loads(listed_workers(STAFF * 500, lambda _: 0, watched=True))) == 1000


def test_metrics_name_the_group_and_its_mode() -> None:
    prometheus = pytest.importorskip("pyworkers.server.http.prometheus", exc_type=ImportError)
    from pyworkers.server.http.pages import Numbers

    states = {"web": {"idle": 1, "busy": 3}}
    numbers = Numbers({}, {}, states, GROUPS, FACTS.busy, {"critical": True, "low": False}, None, 0)
    lines = prometheus.exposition({"default": numbers}).decode().splitlines()
    for line in (
        'pyworkers_workers{group="web",state="busy"} 3.0',
        'pyworkers_group_concurrency{group="web",mode="async"} 50.0',
        'pyworkers_group_busy{group="web"} 3.0',
        'pyworkers_queue_paused{queue="critical"} 1.0',
        'pyworkers_queue_paused{queue="low"} 0.0',
    ):
        assert line in lines


def test_a_host_name_that_is_not_utf8_has_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "h\udcffst")
    assert make_identity().encode().startswith(b"h\\xffst:")
    assert json.loads(info(Facts("h:1:x", {}, [], False, []), 0.0))["hostname"] == "h\\xffst"
