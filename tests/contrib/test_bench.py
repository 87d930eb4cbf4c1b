"""The benchmarks measure what they say: pyworkers with a few jobs, and the arithmetic of the tables."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from contrib.bench import batches, dashboard, loads, machine, report, stamps, targets
from contrib.bench.broker import running_broker
from contrib.bench.crowd import Crowd
from contrib.bench.environments import Environment
from contrib.bench.fill import fill
from contrib.bench.loads import Numbers
from contrib.bench.measures import MEASURES
from contrib.bench.peer import Peer, Serving
from contrib.bench.peers.pyworkers import APP, describe
from contrib.bench.registry import PEERS
from contrib.bench.site import Failed, Site
from tests.helpers.support import wait_for

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server"),
]


@dataclass(frozen=True)
class Here(Environment):
    """The environment that runs the tests, so that nothing is installed."""

    def install(self) -> None:
        pass

    def command(self, name: str) -> str:
        return str(Path(sys.executable).parent / name)

    def program(self, app: str) -> tuple[str, ...]:
        return (self.command("python"), "-m", "contrib.bench.programs.produce", app)

    def versions(self) -> str:
        return "this"


PEER = replace(describe("pyworkers", Here(), "two processes"), expected=100)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("bench")
    with running_broker(folder) as broker:
        yield Site(broker, folder)


def run_jobs(site: Site, peer: Peer, workers: int, count: int) -> tuple[Numbers, int]:
    """The numbers of this many no-op jobs, and of how many processes ran them."""
    site.clear()
    with site.serving(peer, workers):
        # The master, the fork server, and at least two workers.
        wait_for(lambda: len(machine.tree(site.roots)) >= 4, message="workers")
        before = site.read()
        site.program(peer, "push", "noop", count, "bulk")
        site.wait_for_jobs(count, 60)
        after = site.read()
        site.check_jobs(count)
        return loads.between(before, after), len(machine.tree(site.roots))


def test_no_op_jobs_are_counted_outside_redis_and_cost_cpu(site: Site) -> None:
    numbers, processes = run_jobs(site, PEER, 2, 100)
    assert numbers["jobs_s"] > 0
    assert numbers["server_cpu_s"] >= 0
    assert processes == 4
    assert site.jobs() == 100
    assert site.broker.waiting(PEER.queue_key) == 0
    assert site.roots == []


@pytest.mark.parametrize("mode", ["async", "thread"])
def test_many_jobs_share_two_processes(site: Site, mode: str) -> None:
    _, processes = run_jobs(site, replace(PEER, variables=(("BENCH_MODE", mode),)), 100, 100)
    assert processes == 4


def test_a_load_that_is_over_before_the_clock_starts_is_a_failure(site: Site) -> None:
    def serve(_serving: Serving) -> list[tuple[str, ...]]:
        # 100 jobs in one step: the letter is the first byte of their count.
        return [("sh", "-c", r"printf 'd\0\0\0\0\0\0\0' >$BENCH_FOLDER/count-1; exec sleep 60")]

    with pytest.raises(Failed, match="all 100 jobs were executed before the clock"):
        loads.noop(site, replace(PEER, serve=serve), 1.0)


def test_latency_is_that_of_every_stamped_job(site: Site) -> None:
    numbers = stamps.latency(site, PEER, 0.5)
    assert 0 < numbers["p50_ms"] <= numbers["p99_ms"] <= numbers["max_ms"]
    assert len(site.stamps_ms()) == 100


def test_one_producer_for_all_stamps_copies_of_a_job(site: Site) -> None:
    numbers = stamps.pickup(site, PEER, 0.5)
    assert 0 < numbers["p50_ms"] <= numbers["p99_ms"] <= numbers["max_ms"]
    assert len(site.stamps_ms()) == 100


def test_members_of_a_batch_are_compared_with_the_same_jobs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One turn of each: the others are for a better mean.
    monkeypatch.setattr(batches, "_TURNS", ("push", "batch"))
    numbers = batches.batch(site, replace(PEER, expected=2000), 1.0)
    assert all(numbers[f"{kind}{how}_s"] > 0 for kind in ("", "plain_") for how in ("one", "bulk"))
    # The id of the batch in each job, and a member of a SET.
    assert 50 < numbers["bytes"] < 200
    assert site.broker.waiting(PEER.queue_key) == 500


def test_the_blocking_producer_runs_in_no_event_loop(site: Site) -> None:
    site.clear()
    peer = replace(PEER, variables=(("PYTHONWARNINGS", "error::RuntimeWarning"),))
    for command in (("push", "noop", 2, "one"), ("batch", "noop", 2, "bulk"), ("later", "noop", 1, 60, 1)):
        site.program(peer, *command)
    assert site.broker.waiting(PEER.queue_key) == 4


def test_a_server_that_ends_is_a_failure_and_not_a_number(site: Site) -> None:
    def serve(_serving: Serving) -> list[tuple[str, ...]]:
        return [("sh", "-c", "echo no such thing; exit 3")]

    with pytest.raises(Failed, match="no such thing"):
        loads.noop(site, replace(PEER, serve=serve), 1.0)


def test_nothing_is_left_of_a_server_not_even_what_outlived_its_parent(site: Site) -> None:
    def serve(_serving: Serving) -> list[tuple[str, ...]]:
        return [("sh", "-c", "(trap '' TERM; sleep 60 & sleep 60) & echo ready; exit 0")]

    site.clear()
    with site.serving(replace(PEER, serve=serve)) as roots:
        # The two sleeps; their parent has gone.
        wait_for(lambda: sum(map(machine.alive, machine.sessions(roots))) == 2, message="orphans")
    assert not [pid for pid in machine.sessions(roots) if machine.alive(pid)]


def test_jobs_that_run_twice_are_a_failure(site: Site) -> None:
    site.clear()
    (site.counts.folder / "count-1").write_bytes((101).to_bytes(8, "little"))
    with pytest.raises(Failed, match="101 executions of 100"):
        site.check_jobs(100)


def test_a_queue_is_filled_with_jobs_of_their_own(site: Site) -> None:
    site.clear()
    assert fill(site, PEER, "noop", 25) == 25
    assert len(set(site.broker.client.lrange(PEER.queue_key, 0, -1))) == 25


def test_every_peer_says_what_it_promises_and_how_it_was_set() -> None:
    peer: Peer
    for peer in PEERS.values():
        assert peer.delivery, peer.name
        assert peer.settings, peer.name
        assert peer.serve(Serving(1, 10)), peer.name
    assert PEERS["pyworkers"].program[-1] == APP


def test_a_table_has_medians_spread_ratio_of_pairs_and_failures() -> None:
    def rounds(*rates: float) -> list[Numbers | None]:
        return [{"jobs_s": rate, "cpu_s": 0.5, "server_cpu_s": 0.25, "redis_cpu_s": 0.25} for rate in rates]

    # The machine was slow in the second round: pairs are compared, not medians.
    by_peer: dict[str, list[Numbers | None]] = {
        "pyworkers": rounds(1000, 100, 1100),
        "huey": [*rounds(500, 50), None],
        "rq": [None] * 3,
    }
    text = report.table(MEASURES["noop"], by_peer).splitlines()
    assert text[4].startswith("| pyworkers | 1.00 | 1.00 | 1,000 (100 to 1,100) | 0.500 |")
    assert text[5].startswith("| huey | 0.50 | 1.00 | 275 (50 to 500), 1 failed | 0.500, 1 failed |")
    assert text[6] == "| rq | - | - | failed | failed | failed | failed |"


def test_a_target_is_the_median_of_ratios_within_the_rounds() -> None:
    def rounds(*rates: float) -> list[Numbers | None]:
        return [{"jobs_s": rate, "cpu_s": 0.05, "redis_cpu_s": 0.01} for rate in rates]

    results = {
        "measures": {
            "noop": {
                "date": "today",
                "ours": "2.0",
                "machine": {
                    "cores": 2,
                    "cpu": "Abacus",
                    "memory_mb": 640,
                    "kernel": "1.0",
                    "python": "3.11",
                },
                "rounds": 3,
                "scale": 1,
                "redis": "7",
                "failures": [],
                "peers": {
                    "pyworkers-uvloop": rounds(1000, 100, 1100),
                    "go-workers2": rounds(500, 50, 400),
                    "huey": [None] * 3,
                },
            }
        },
    }
    rows = [targets.TARGETS[name] for name in ("noop", "noop-huey", "cost", "cost-redis")]
    lines = targets.table(results, rows).splitlines()
    assert lines[6:10] == [
        "| noop | no-op | go-workers2 | ≥ 2 | 2.00 (2.00 to 2.75) | yes | 1,000 | 400 |",
        "| noop-huey | no-op | huey | ≥ 4 | not measured | - | 1,000 | - |",
        "| cost | CPU of a job, all told | go-workers2 | ≤ 0.6 | 1.00 | no | 0.050 | 0.050 |",
        "| cost-redis | CPU of a job, Redis alone | go-workers2 | - | 1.00 | - | 0.010 | 0.010 |",
    ]
    assert lines[11].startswith("`noop`: today, pyworkers 2.0, 3 rounds")
    assert lines[11].endswith("2 cores (Abacus), 640 MB, Linux 1.0, Python 3.11.")


def test_every_target_names_a_measurement_that_its_peers_take_part_in() -> None:
    for measure, names in targets.needed(targets.TARGETS.values()).items():
        for name in names:
            assert MEASURES[measure].fits(PEERS[name]), (measure, name)


def test_tables_replace_those_of_a_page_and_nothing_else() -> None:
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    assert report.splice(page, "new") == f"before\n{report.BEGIN}\n\nnew\n{report.END}\nafter\n"


def test_a_picture_has_one_bar_for_each_peer_that_did_not_fail() -> None:
    by_peer: dict[str, list[Numbers | None]] = {
        "pyworkers": [{"jobs_s": 1000.0}],
        "huey": [{"jobs_s": 500.0}],
        "rq": [None],
    }
    svg = report.picture(MEASURES["noop"], by_peer)
    assert svg.count('height="18" fill="#') == 2
    assert ">500<" in svg


def test_pages_are_measured_beside_large_queues(site: Site) -> None:
    site.clear()
    crowd = Crowd(2001, 7, 6, 5, running=60, queues=3, classes=2, batches=4, locks=5, limits=6)
    crowd.fill(site.broker)
    client = site.broker.client
    assert (client.llen("queue:default"), client.zcard("schedule"), client.zcard("retry")) == (2001, 7, 6)
    assert (client.zcard("dead"), client.scard("processes"), client.scard("queues")) == (5, 2, 4)
    assert (client.zcard("pyworkers:batches"), client.hlen("pyworkers:limits")) == (4, 6)
    with dashboard.dashboard(site.broker.url, site.folder / "web.log") as (port, pid):
        pids = (pid, site.broker.pid)
        queues, nothing = dashboard.measure(port, pids, ["/queues", "/nothing"], rounds=1)
    assert (queues.status, nothing.status, nothing.missed) == (200, 404, True)
    assert queues.median_ms > 0
