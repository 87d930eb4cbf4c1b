"""One frame of ``pyworkers top``: its contents, and that all of them fit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pyworkers.api import GroupStats, QueueStats, Stats, Work
from pyworkers.api.processes import SERVER
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.times import Times
from pyworkers.cli.targets import Located
from pyworkers.cli.text import width
from pyworkers.cli.top import Sample, View, frame
from pyworkers.store.processes.decoding import process_view
from pyworkers.store.processes.views import ProcessView, WorkView

NOW = 1_795_225_197.5
VIEW = View("title", Times())
EMPTY = Stats(0, 0, 0, 0, 0, 0, 0, 0)


def server(identity: str, busy: int = 1) -> ProcessView:
    info = json.dumps({"started_at": NOW - 7260, "concurrency": 5, "queues": ["q"]}).encode()
    fields = {"info": info, "busy": b"%d" % busy, "beat": b"%f" % (NOW - 3), "quiet": b"true", "rss": b"2048"}
    view = process_view(identity, {**fields, "rtt_us": None, "concurrency": None})
    assert view is not None
    return view


def work(jid: str, run_at: float) -> Work:
    payload = json.dumps({"class": "Add", "args": [], "jid": jid}).encode()
    return Work(WorkView("host:1:a", "t1", "q", run_at, payload))


def sample(queues: int, servers: int, works: int, groups: int = 0) -> Sample:
    stats = replace(
        EMPTY,
        processed=1000,
        groups=[
            GroupStats(f"g{n}", {f"q{n}": 5, "low": 1}, False, "async", 1, 2, 50, n) for n in range(groups)
        ],
        queues=[QueueStats(f"q{n}", n, 0, NOW - 61, False, True) for n in range(queues)],
        servers=[server(f"host:{n}:a") for n in range(servers)],
    )
    return Sample(NOW, stats, [work(f"j{n}", NOW - n) for n in range(works)])


def framed(one: Sample, before: Sample | None, columns: int, lines: int | None) -> list[str]:
    return frame([Located("", one)], {} if before is None else {"": before}, VIEW, columns, lines)


def test_a_frame_shows_counts_queues_servers_and_running_jobs() -> None:
    lines = [line.rstrip() for line in framed(sample(2, 1, 1, 2), None, 80, None)]
    assert lines == [
        "title",
        "processed 1,000  failed 0  expired 0  enqueued 0  busy 0  scheduled 0  retries 0",
        "dead 0  processes 0",
        "",
        "QUEUE  SIZE  LATENCY  IN PROGRESS  STATE",
        "q1        1     1m1s            0",
        "q0        0                     0",
        "",
        "GROUP  MODE   SERVERS  PROCESSES  BUSY  OF  QUEUES",
        "g0     async        1          2     0  50  q0:5,low:1",
        "g1     async        1          2     1  50  q1:5,low:1",
        "",
        "IDENTITY  STARTED  BUSY  OF  MEMORY  BEAT     STATE  QUEUES",
        "host:0:a  2 h ago     1   5    2 MB  3 s ago  quiet  q",
        "",
        "STARTED  JID  QUEUE  CLASS  THREAD  IDENTITY",
        "now      j0   q      Add    t1      host:1:a",
    ]


def test_a_frame_of_several_redis_servers_names_each_and_keeps_one_order() -> None:
    here, there = sample(2, 1, 2), sample(3, 1, 1)
    lines = frame([Located("default", here), Located("archive", there)], {}, VIEW, 200, None)
    found = [line.split() for line in lines if line.strip()]
    assert [words[0] for words in found[1:3]] == ["default:", "archive:"]
    heads = [number for number, words in enumerate(found) if words[0] == "REDIS"]
    assert len(heads) == 3, "queues, servers and jobs"
    queues, jobs = found[heads[0] + 1 : heads[1]], found[heads[2] + 1 :]
    assert [words[:3] for words in queues] == [
        ["archive", "q2", "2"],
        ["default", "q1", "1"],
        ["archive", "q1", "1"],
        ["default", "q0", "0"],
        ["archive", "q0", "0"],
    ]
    assert [words[0] for words in jobs] == ["default", "default", "archive"]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "quiet"),
        ({"stops_at": NOW + 20.4}, "stopping, 20s left"),
        ({"stops_at": NOW - 5}, "stopping, 0s left"),
        ({"stops_at": NOW + 20, "beat": NOW - 61}, "silent"),
        ({"quiet": False}, ""),
    ],
)
def test_the_state_of_a_server(changes: dict[str, Any], state: str) -> None:
    assert Form(NOW).row(SERVER.shown("state"), replace(server("host:1:a"), **changes)) == [state]


def test_the_longest_running_job_and_the_fullest_queue_are_first() -> None:
    lines = framed(sample(9, 0, 9), None, 80, None)
    assert lines[5].startswith("q8 ")
    assert next(line for line in lines if " j" in line).split()[:4] == ["8", "s", "ago", "j8"]


def test_rates_count_since_the_frame_before() -> None:
    now, before = sample(0, 0, 0), replace(sample(0, 0, 0), at=NOW - 2)
    now = replace(now, stats=replace(now.stats, processed=1500, failed=4))
    assert framed(now, before, 200, None)[1].startswith("processed 1,500 (250/s)  failed 4 (2/s)")


def test_what_is_unusual_is_counted_once_it_happens() -> None:
    now = sample(0, 0, 0)
    assert "misfits" not in framed(now, None, 200, None)[1]
    assert "misfits 5" in framed(replace(now, stats=replace(now.stats, misfits=5)), None, 200, None)[1]


def test_counters_that_were_reset_have_no_negative_rate() -> None:
    before = replace(sample(0, 0, 0), at=NOW - 2)
    now = replace(sample(0, 0, 0), stats=EMPTY)
    assert "processed 0 (0/s)" in framed(now, before, 200, None)[1]


@pytest.mark.parametrize("size", [(80, 24), (132, 50), (20, 5), (1, 1), (80, 3)])
@pytest.mark.parametrize("things", [(0, 0, 0), (1, 1, 1, 1), (500, 40, 100, 30), (3, 0, 200)])
def test_a_frame_never_leaves_the_screen(size: tuple[int, int], things: tuple[int, ...]) -> None:
    columns, lines = size
    shown = framed(sample(*things), None, columns, lines)
    assert len(shown) <= lines
    assert {width(line) for line in shown} == {columns}


def test_at_80_by_24_each_section_keeps_room_and_says_what_is_cut() -> None:
    lines = [line.rstrip() for line in framed(sample(500, 40, 100, 30), None, 80, 24)]
    assert len(lines) == 24
    assert sum(line.endswith(" more") for line in lines) == 4
    assert [line.split()[0] for line in lines if line.isupper()] == ["QUEUE", "GROUP", "IDENTITY", "STARTED"]


def test_nothing_that_is_shown_steers_the_terminal() -> None:
    stats = replace(
        EMPTY,
        queues=[QueueStats("a\x1b[2J", 1, 0, None, True, False)],
        groups=[GroupStats("\x1b", {"\x9b": 1}, True, "\n", 1, 1, 1, 1)],
        servers=[server("\x9bm\n")],
    )
    evil = Sample(NOW, stats, [work("\x1b]0;title\x07", NOW)])
    assert all(line.isprintable() for line in framed(evil, None, 200, None))
