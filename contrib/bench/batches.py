"""Loads of jobs that are members of one batch, each alongside the same jobs without one."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from contrib.bench.loads import Numbers, served, size
from contrib.bench.peer import Peer
from contrib.bench.site import Site

# In turn, and in the opposite order: the speed of a machine changes within seconds.
_TURNS = ("push", "batch", "batch", "push") * 2


def batch(site: Site, peer: Peer, scale: float) -> Numbers:
    """Enqueueing, memory and CPU of the members, and their ratios to the numbers of other jobs."""
    count = size(peer.expected / 2, scale)
    taken: dict[str, list[Numbers]] = {word: [] for word in _TURNS}
    for word in _TURNS:
        taken[word].append(_taken(site, peer, count, word))
    plain, member = _means(taken["push"]), _means(taken["batch"])
    one_s = {word: _rate(site, peer, word, count // 2, "one") for word in ("push", "batch")}
    return {
        "one_s": one_s["batch"],
        "plain_one_s": one_s["push"],
        "bulk_s": member["pushed_s"],
        "plain_bulk_s": plain["pushed_s"],
        "bytes": (member["bytes"] - plain["bytes"]) / count,
        "cpu_s": member["cpu_s"],
        "plain_cpu_s": plain["cpu_s"],
        "server_cpu_s": member["server_cpu_s"] - plain["server_cpu_s"],
        "redis_cpu_s": member["redis_cpu_s"] - plain["redis_cpu_s"],
        "others_cpus": max(plain["others_cpus"], member["others_cpus"]),
    }


def _taken(site: Site, peer: Peer, count: int, word: str) -> Numbers:
    """``count`` jobs: how fast they are enqueued, how many bytes they are in Redis, and what they cost."""
    site.clear()
    before_bytes = site.broker.used_bytes()
    pushed_s = count / site.program(peer, word, "noop", count, "bulk")
    held = site.broker.used_bytes() - before_bytes
    with site.serving(peer):
        numbers = served(site, count)
    return numbers | {"pushed_s": pushed_s, "bytes": held}


def _means(taken: Sequence[Numbers]) -> Numbers:
    return {name: mean(numbers[name] for numbers in taken) for name in taken[0]}


def _rate(site: Site, peer: Peer, word: str, count: int, how: str) -> float:
    site.clear()
    return count / site.program(peer, word, "noop", count, how)
