"""Unique jobs through clients, and their locks through the API and the command line, against real servers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import redis

from pyworkers import Client, DuplicateJobError, QueueFullError
from pyworkers.api import LockSet, Queue
from pyworkers.api.locks import read_lock_page
from pyworkers.protocol.keys import Keys
from pyworkers.store.acl import Role
from tests.helpers.acl import url_of
from tests.store.conftest import Cli


@pytest.fixture
def client(redis_url: str, namespace: str) -> Iterator[Client]:
    """It has the rights of a client."""
    with Client(url_of(redis_url, Role.CLIENT, namespace), namespace=namespace) as client:
        yield client


@pytest.fixture
def locks(redis_url: str, namespace: str) -> LockSet:
    return LockSet(redis_url, namespace=namespace)


def test_a_unique_job_is_enqueued_once(client: Client, db: redis.Redis, keys: Keys) -> None:
    first = client.enqueue("q", "Add", [1], unique_for=60)
    assert client.enqueue("q", "Add", [1], unique_for=60) == first
    assert client.enqueue_in(60, "q", "Add", [1], unique_for=60) == first
    bulk = client.enqueue_bulk("q", "Add", [[1], [2], [2]], unique_for=60)
    assert (bulk[0], bulk[1] == bulk[2]) == (first, True)
    assert db.llen(keys.queue("q")) == 2
    with pytest.raises(DuplicateJobError) as caught:
        client.enqueue("q", "Add", [1], unique_for=60, on_duplicate="raise")
    assert caught.value.jid == first
    assert client.enqueue("q", "Add", [1]) != first


def test_a_queue_takes_no_more_than_its_limit(client: Client, redis_url: str, namespace: str) -> None:
    for number in range(3):
        client.enqueue("q", "Add", [number], max_waiting=3)
    with pytest.raises(QueueFullError) as caught:
        client.enqueue("q", "Add", [3], max_waiting=3)
    assert (caught.value.queue, caught.value.limit) == ("q", 3)
    assert client.try_enqueue("q", "Add", [3], max_waiting=3, wait=0.05) is None
    # All or nothing for each portion of a thousand.
    with pytest.raises(QueueFullError):
        client.enqueue_bulk("q", "Add", ([n] for n in range(2500)), max_waiting=2500)
    assert Queue("q", redis_url, namespace=namespace).size == 2003
    assert client.try_enqueue("q", "Add", [3], max_waiting=2004)


# --- locks ------------------------------------------------------------------------------------------------


def test_the_locks_are_listed(client: Client, locks: LockSet) -> None:
    jids = client.enqueue_bulk("q", "Add", ([n] for n in range(1500)), unique_for=60)
    debounced = client.enqueue_in(600, "p", "Mail", [1], unique_for=60, on_duplicate="replace")
    found = {lock.jid: lock for lock in locks}
    assert found.keys() == {*jids, debounced}
    lock = found[debounced]
    assert (lock.job_class, lock.queue, lock.key) == ("Mail", "p", f"Mail|p|{lock.digest}")
    assert re.fullmatch("[0-9a-f]{32}", lock.digest)
    about = lock.as_dict()
    assert 600 < about.pop("ttl") <= 660
    assert about == {
        "key": lock.key, "class": "Mail", "queue": "p", "digest": lock.digest, "jid": debounced,
    }  # fmt: skip


def test_a_lock_is_released_from_its_holder_alone(
    client: Client, locks: LockSet, db: redis.Redis, keys: Keys
) -> None:
    client.enqueue_in(60, "q", "Add", [1], unique_for=60, on_duplicate="replace")
    (before,) = locks
    second = client.enqueue_in(60, "q", "Add", [1], unique_for=60, on_duplicate="replace")
    assert not before.release()
    (lock,) = locks.find(second)
    assert (lock.key, lock.jid) == (before.key, second)
    assert lock.release()
    assert (lock.release(), list(locks), db.keys(keys.unique("*"))) == (False, [], [])
    third = client.enqueue("q", "Add", [1], unique_for=60)
    assert third != second
    assert db.zcard(keys.schedule) == 1


@pytest.mark.parametrize("by", ["key", "digest", "jid"])
def test_the_command_releases_by_any_name(client: Client, locks: LockSet, cli: Cli, by: str) -> None:
    jid = client.enqueue("q", "Add", [1], unique_for=60)
    other = client.enqueue("q", "Add", [2], unique_for=60)
    (lock,) = locks.find(jid)
    name = getattr(lock, by)
    result = cli("locks", "release", name)
    assert (result.exit_code, result.stdout) == (0, f"{lock.key} is released from {jid}\n")
    assert {left.jid for left in locks} == {other}
    result = cli("locks", "release", name, other, "--json")
    assert result.exit_code == 1
    assert [row["jid"] for row in json.loads(result.stdout)["released"]] == [other]
    result = cli("locks", "release", name)
    assert (result.exit_code, result.stderr) == (1, f"{name} is not held, or another job holds it\n")


def test_a_lock_that_a_scan_shows_twice_is_found_once(
    client: Client, locks: LockSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    jid = client.enqueue("q", "Add", [1], unique_for=60)
    twice = list(locks) * 2
    monkeypatch.setattr(LockSet, "__iter__", lambda _: iter(twice))
    assert [lock.jid for lock in locks.find(jid)] == [jid]


def test_the_command_lists(client: Client, cli: Cli) -> None:
    assert cli("locks").stdout == "No locks: no unique job is enqueued or running.\n"
    jids = [client.enqueue(queue, "Add", [1], unique_for=3600) for queue in "qr"]
    lines = cli("locks").stdout.splitlines()
    assert lines[0].split() == ["class", "queue", "expires", "jid", "digest"]
    assert {(*line.split()[:2], line.split()[5]) for line in lines[1:]} == {
        ("Add", "q", jids[0]),
        ("Add", "r", jids[1]),
    }
    assert {row["jid"] for row in json.loads(cli("locks", "--json").stdout)} == set(jids)
    assert [row["jid"] for row in json.loads(cli("locks", "--queue", "r", "--json").stdout)] == [jids[1]]
    assert json.loads(cli("locks", "list", "--class", "None", "--json").stdout) == []


def test_what_other_programs_wrote_is_shown(locks: LockSet, db: redis.Redis, keys: Keys, cli: Cli) -> None:
    db.set(keys.unique("theirs"), b"\xff\x1b[0m")
    db.hset(keys.unique("no string"), "f", 1)
    db.set(keys.unique("a|b|c:at"), "1")
    (lock,) = locks
    assert (lock.job_class, lock.queue, lock.digest, lock.ttl_s) == ("", "", "theirs", None)
    assert json.loads(cli("locks", "--json").stdout)[0]["key"] == "theirs"
    assert "never" in cli("locks").stdout
    assert "\x1b" not in cli("locks").stdout
    assert cli("locks", "release", "theirs").exit_code == 0


def test_locks_page_by_page(locks: LockSet, db: redis.Redis, keys: Keys) -> None:
    admin = locks._admin
    pipe = db.pipeline()
    for number in range(2000):
        pipe.set(keys.unique(f"Add|q|{number:032x}"), f"j{number}")
    pipe.execute()
    found, cursor = [], 0
    while True:
        page = admin.run(read_lock_page(keys, cursor, 50))
        assert len(page.locks) < 300
        assert page.scanned > 0
        found += [lock.jid for lock in page.locks]
        if not (cursor := page.cursor):
            break
    assert set(found) == {f"j{number}" for number in range(2000)}
    shown, cursor = [], 0
    while True:
        page = admin.run(read_lock_page(keys, cursor, 50, "j1999"))
        shown += [lock.jid for lock in page.locks]
        if not (cursor := page.cursor):
            break
    assert set(shown) == {"j1999"}


def test_a_page_of_locks_ends_where_there_are_few(locks: LockSet, db: redis.Redis, keys: Keys) -> None:
    pipe = db.pipeline()
    for number in range(30_000):
        pipe.set(f"{keys.namespace}other:{number}", "")
    pipe.execute()
    db.set(keys.unique("Add|q|1"), b"\xff")
    db.hset(keys.unique("Add|q|2"), "another", "type")
    page = locks._admin.run(read_lock_page(keys, 0, 50))
    assert page.cursor
    assert 20_000 <= page.scanned < 21_050
    found = [*page.locks]
    while page.cursor:
        page = locks._admin.run(read_lock_page(keys, page.cursor, 50))
        found += page.locks
    assert {lock.jid for lock in found} == {"\udcff"}


def test_a_search_among_many_locks_ends_after_some_thousand(
    locks: LockSet, db: redis.Redis, keys: Keys
) -> None:
    odd = Keys(f"{keys.namespace}[a]*\\?:")
    pipe = db.pipeline()
    for number in range(9000):
        pipe.set(odd.unique(f"Add|q|{number}"), f"j{number}")
    pipe.execute()
    page = locks._admin.run(read_lock_page(odd, 0, 50, "none"))
    assert page.cursor
    assert page.locks == []
    assert 2000 <= page.scanned < 20_000
    found = locks._admin.run(read_lock_page(odd, 0, 50))
    assert len(found.locks) >= 50
