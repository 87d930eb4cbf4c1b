"""When a worker is due to be replaced: after this many jobs, or for its private memory."""

from __future__ import annotations

import mmap
import random
import sys
from collections.abc import Callable

import pytest

from pyworkers.worker import recycle
from pyworkers.worker.recycle import Recycler, private_memory_kb
from tests.helpers.support import next_line, running_python

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


class Fixed(random.Random):
    """Randomness that always gives the same share of what is possible."""

    def __init__(self, share: Callable[[int], int]) -> None:
        super().__init__()
        self._share = share

    def randrange(self, start: int, *_: object) -> int:
        return self._share(start)


def least(_: int) -> int:
    return 0


def most(stop: int) -> int:
    return stop - 1


def jobs_until_due(recycler: Recycler) -> int:
    return next(count for count in range(1, 10_000) if recycler.due())


@pytest.mark.parametrize(
    ("max_jobs", "earliest", "latest"),
    [(1, 1, 1), (9, 9, 9), (10, 10, 11), (100, 100, 110), (1000, 1000, 1100)],
)
def test_a_worker_leaves_after_its_jobs_or_up_to_a_tenth_later(
    max_jobs: int, earliest: int, latest: int
) -> None:
    assert jobs_until_due(Recycler(max_jobs, 0, Fixed(least))) == earliest
    assert jobs_until_due(Recycler(max_jobs, 0, Fixed(most))) == latest


def test_without_limits_it_stays() -> None:
    recycler = Recycler(0, 0, Fixed(least))
    assert not any(recycler.due() for _ in range(10_000))


@pytest.mark.parametrize(("used_kb", "due"), [(100 * 1024, False), (100 * 1024 + 1, True)])
def test_it_leaves_when_its_private_memory_passes_the_limit(
    monkeypatch: pytest.MonkeyPatch, used_kb: int, due: bool
) -> None:
    monkeypatch.setattr(recycle, "private_memory_kb", lambda: used_kb)
    assert Recycler(0, 100, Fixed(least)).due() is due


def test_memory_that_does_not_grow_is_looked_at_only_every_half_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []
    clock = [50.0]

    def look() -> int:
        looks.append(clock[0])
        return 1

    monkeypatch.setattr(recycle, "private_memory_kb", look)
    monkeypatch.setattr(recycle, "resident_kb", lambda: 1)
    monkeypatch.setattr(recycle, "peak_kb", lambda: 1)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    recycler = Recycler(0, 100, Fixed(least))
    for tick in range(101):
        clock[0] = 50 + tick / 100
        recycler.due()
    assert looks == [50.0, 50.5, 51.0]


@linux_only
@pytest.mark.parametrize("peak_mb", [0, 400], ids=["growing", "growing below the peak of an earlier job"])
def test_a_leak_is_seen_by_the_job_that_passes_the_limit(peak_mb: int) -> None:
    code = """
    import random
    from pyworkers.worker import recycle
    # Not by the clock.
    recycle._MEMORY_CHECK_S = 1e9
    recycler, kept = recycle.Recycler(0, 100, random.Random()), []
    peak = b"x" * (int(sys.argv[1]) << 20)
    del peak
    for job in range(24):
        due = recycler.due()
        print(job, 0 < recycle.private_memory_kb() <= 100 << 10, due)
        kept.append(b"x" * (40 << 20))
        if due:
            break
    """
    with running_python(code, peak_mb) as process:
        seen = iter(lambda: next_line(process), "")
        assert list(seen) == ["0 True False", "1 True False", "2 True False", "3 False True"]


def test_private_memory_is_what_only_this_process_uses() -> None:
    size = 32 << 20
    # Of its own: an object's memory may be some that the process has had before, and counts already.
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        before = private_memory_kb()
        for page in range(0, size, mmap.PAGESIZE):
            block[page] = 1
        after = private_memory_kb()
    assert before > 0
    assert 31 << 10 <= after - before <= 40 << 10
