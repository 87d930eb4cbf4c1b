"""What a failover loses: enqueues at 200 a second through each kind, and which jobs are there afterwards.

    python -m contrib.bench.failover
    python -m contrib.bench.failover planned hang

Each row is one run on real servers of this machine: three of Redis and three sentinels, two of Redis whose
roles change by hand, or one of Redis that is started again. A producer repeats no call. Run from the root of
the repository; needs ``redis-server``.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.helpers.enqueuing import Call, Producer, kept, lost
from tests.helpers.redises import PERSISTENT, Group, OwnRedis, replicate
from tests.helpers.support import wait_for

_BEFORE, _AFTER = 300, 400
_HEADER = (
    "| what happens | setting | client | acknowledged | lost | for | refused | no reply | gap |",
    "|---|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Row:
    """One run."""

    name: str
    setting: str
    kind: str
    options: tuple[str, ...] = ()
    replicas: int = 2


@dataclass(frozen=True)
class Found:
    """The calls of the producer, and the jobs that are there at the end."""

    calls: Sequence[Call]
    there: set[str]

    def line(self, row: Row) -> str:
        """The row of the table."""
        good = [call for call in self.calls if call.jid]
        gone = lost(good, self.there)
        span = f"{gone[-1].ended - gone[0].ended:.1f} s" if gone else ""
        refused = sum(call.code == "NOREPLICAS" for call in self.calls)
        silent = sum(not call.jid and call.code != "NOREPLICAS" for call in self.calls)
        ends = [call.ended for call in good if call.jid in self.there]
        gap = max(later - earlier for earlier, later in pairwise(ends))
        cells = [row.name, row.setting, row.kind, len(good), len(gone), span, refused, silent, f"{gap:.1f} s"]
        return "| " + " | ".join(map(str, cells)) + " |"


def planned(group: Group) -> contextlib.AbstractContextManager[None]:
    """SENTINEL FAILOVER."""
    group.fail_over()
    return contextlib.nullcontext()


def kill(group: Group) -> contextlib.AbstractContextManager[None]:
    """SIGKILL of the primary."""
    group.servers[0].kill()
    return contextlib.nullcontext()


def hang(group: Group) -> contextlib.AbstractContextManager[None]:
    """SIGSTOP of the primary."""
    return group.servers[0].stopped()


WAYS: dict[str, Callable[[Group], contextlib.AbstractContextManager[None]]] = {
    "planned": planned,
    "kill": kill,
    "hang": hang,
}


PROMOTED, DEMOTED = "the replica is promoted a second before", "the former primary is a replica before"
# A person types a command, and then the next one.
_TYPING_S = 1.0


def _bound(replicas: int) -> tuple[str, ...]:
    return "--min-replicas-to-write", str(replicas)


ROWS = [
    *(Row(way, "two replicas", kind) for way in WAYS for kind in ("client", "async")),
    Row("planned", "two replicas, `min-replicas-to-write 1`", "client", _bound(1)),
    Row("planned", "two replicas, `min-replicas-to-write 2`", "client", _bound(2)),
    Row("planned", "one replica, `min-replicas-to-write 1`", "client", _bound(1), replicas=1),
    *(Row("by hand", order, kind) for order in (PROMOTED, DEMOTED) for kind in ("client", "async")),
    Row("alone", "`appendfsync always`", "client", ("--appendonly", "yes", "--appendfsync", "always")),
    Row("alone", "`appendfsync everysec`", "client", ("--appendonly", "yes", "--appendfsync", "everysec")),
    Row("alone", "`appendonly no`", "client", ("--appendonly", "no", "--save", "3600 1")),
]


def run(row: Row) -> Found:
    """One run."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise RuntimeError("no redis-server; install Debian's package redis-server")
    with tempfile.TemporaryDirectory() as name:
        way = {"alone": _run_alone, "by hand": _run_by_hand}.get(row.name, _run_group)
        return way(row, binary, Path(name))


def _run_group(row: Row, binary: str, folder: Path) -> Found:
    group = Group(binary, folder, *row.options, replicas=row.replicas)
    try:
        group.start()
        with _producing(group.url, row.kind, folder) as producer:
            with WAYS[row.name](group):
                successor = group.promoted(group.servers[0])
                since = time.monotonic()
                calls = _calls_after(producer, successor, since)
            return Found(calls, _kept(successor))
    finally:
        group.close()


def _run_alone(row: Row, binary: str, folder: Path) -> Found:
    with OwnRedis(binary, folder / "redis", *row.options).start() as server:
        with _producing(server.url, row.kind, folder) as producer:
            server.kill()
            server.start()
            since = time.monotonic()
            calls = _calls_after(producer, server, since)
        return Found(calls, _kept(server))


def _run_by_hand(row: Row, binary: str, folder: Path) -> Found:
    """The address is a link to a socket, which moves as a name does: open connections stay where they are."""
    address = folder / "address"
    with contextlib.ExitStack() as stack:
        former, other = (
            stack.enter_context(
                OwnRedis(binary, folder / name, *PERSISTENT, "--unixsocket", f"{address}.{name}")
            )
            for name in ("former", "other")
        )
        former.start()
        other.start()
        replicate(other, former)
        address.symlink_to(f"{address}.former")
        producer = stack.enter_context(_producing(f"unix://{address}", row.kind, folder))
        if row.setting == DEMOTED:
            _make_replica(former, other)
        with other.client() as client:
            client.replicaof("NO", "ONE")
        since = time.monotonic()
        Path(f"{address}.new").symlink_to(f"{address}.other")
        Path(f"{address}.new").replace(address)
        if row.setting == PROMOTED:
            time.sleep(_TYPING_S)
            _make_replica(former, other)
        calls = _calls_after(producer, other, since)
        return Found(calls, _kept(other))


def _make_replica(server: OwnRedis, primary: OwnRedis) -> None:
    with server.client() as client:
        client.replicaof("127.0.0.1", primary.port)


@contextlib.contextmanager
def _producing(url: str, kind: str, folder: Path) -> Iterator[Producer]:
    with Producer(url, kind, folder / "calls") as producer:
        wait_for(lambda: len(producer.acknowledged()) > _BEFORE, message="it enqueues")
        yield producer


def _calls_after(producer: Producer, server: OwnRedis, since: float) -> list[Call]:
    """The calls, once many jobs of the time since then are there."""

    def has_many() -> bool:
        there = _kept(server)
        return sum(call.jid in there for call in producer.acknowledged() if call.ended > since) > _AFTER

    wait_for(has_many, message="the producer has followed")
    # A job of a call under way may be noted after it was looked for.
    return producer.calls()[:-1]


def _kept(server: OwnRedis) -> set[str]:
    with server.client() as client:
        return kept(client)


def main(words: Sequence[str]) -> None:
    """Run the rows of these names, or all, and print the table."""
    print("\n".join(_HEADER), flush=True)
    for row in ROWS:
        if not words or row.name in words:
            print(run(row).line(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
