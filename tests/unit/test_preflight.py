"""What is unsafe about a Redis and an application: one finding for each cause, and none without one."""

from __future__ import annotations

import pytest

from pyworkers.config.fields import RedisConfig
from pyworkers.store.preflight import judge, judge_app, judge_files, judge_queues, judge_wire

SAFE = {"redis_version": "7.0.15", "role": "master", "maxmemory_policy": "noeviction", "aof_enabled": "1"}


@pytest.mark.parametrize(
    ("info", "offset_s", "scripts", "codes"),
    [
        ({}, 0.0, True, []),
        ({}, 0.9, True, []),
        ({"redis_version": "6.2.0"}, 0.0, True, []),
        ({"redis_version": "6.0.16"}, 0.0, True, ["version"]),
        ({"role": "slave"}, 0.0, True, ["role"]),
        ({"maxmemory_policy": "allkeys-lru"}, 0.0, True, ["eviction"]),
        ({"used_memory": "89", "maxmemory": "100"}, 0.0, True, []),
        ({"used_memory": "90", "maxmemory": "100"}, 0.0, True, ["memory"]),
        ({"used_memory": "90", "maxmemory": "0"}, 0.0, True, []),
        ({"aof_enabled": "0"}, 0.0, True, ["persistence"]),
        ({}, -1.5, True, ["clock"]),
        ({}, 0.0, False, ["scripts"]),
        ({"role": "slave", "aof_enabled": "0"}, 90.0, False, ["role", "persistence", "clock", "scripts"]),
    ],
)
def test_a_redis(info: dict[str, str], offset_s: float, scripts: bool, codes: list[str]) -> None:
    found = judge(SAFE | info, None, offset_s, "redis-cli -p 7", scripts=scripts)
    assert [finding.code for finding in found] == codes
    assert all(finding.message and finding.fix for finding in found)
    assert all("redis-cli -p 7 " in finding.fix for finding in found if "redis-cli" in finding.fix)


def test_a_primary_of_sentinels() -> None:
    [found] = judge(SAFE, None, 0.0, "redis-cli -p 7", followed=True)
    assert (found.code, found.advice) == ("replication", True)
    assert "redis-cli -p 7 CONFIG SET min-replicas-to-write 1" in found.fix
    assert judge(SAFE | {"min_slaves_good_slaves": "1"}, None, 0.0, "redis-cli -p 7", followed=True) == []


def test_files_for_tls_without_tls() -> None:
    files = {"ca_file": "ca.pem", "key_file": "key.pem"}
    for url in ("rediss://h", "rediss+sentinel://h/main", "unix:///run/redis.sock", "embedded:redis"):
        assert judge_files(RedisConfig(url, **files)) == []
    assert judge_files(RedisConfig("redis://h")) == []
    [found] = judge_files(RedisConfig("redis+cluster://h", "{app}:", **files))
    assert (found.message, found.fix) == (
        "connections by redis+cluster:// are not encrypted, and nothing reads ca_file and key_file",
        "write rediss+cluster:// in the url, or remove ca_file and key_file",
    )


@pytest.mark.parametrize(
    ("import_ms", "threads", "codes"),
    [(200, [], []), (200, ["metrics"], ["threads"]), (10_001, [], ["import"])],
)
def test_an_application(import_ms: int, threads: list[str], codes: list[str]) -> None:
    found = judge_app("pkg.tasks:worker", import_ms, threads)
    assert [finding.code for finding in found] == codes
    assert all("import pkg.tasks" in finding.fix for finding in found if finding.code == "import")


def test_servers_that_speak_another_wire_alone() -> None:
    assert judge_wire([]) == judge_wire(["1"]) == judge_wire(["1", "2"]) == []
    [finding] = judge_wire(["2", "3"])
    assert finding.message == "the live servers speak wire 2, 3, and this release 1"


def test_queues() -> None:
    waiting = {"own": 5, "peers": 5, "empty": 0, "unserved": 2}
    homes = {"own": "default", "moved": "archive"}
    found = judge_queues("default", {**waiting, "moved": 1}, {"peers"}, homes)
    assert [(finding.message, finding.fix) for finding in found] == [
        (
            "1 job waits in the queue 'moved', which no server serves",
            "it is on archive now: pyworkers move moved --from default --to archive",
        ),
        (
            "2 jobs wait in the queue 'unserved', which no server serves",
            "add a handler of this queue, or see pyworkers jobs unserved",
        ),
    ]
    assert not judge_queues("archive", {"moved": 1}, (), homes)
