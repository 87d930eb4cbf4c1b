"""What ``stats`` and ``queues`` make of what they read; that they read the right keys is in tests/system."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from pyworkers.api import ProcessSet, Stats
from pyworkers.api import stats as api_stats
from pyworkers.cli import main
from pyworkers.protocol.flow.counted import COUNTERS
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps
from pyworkers.store.search import Search
from pyworkers.store.stats import Overview, QueueView

NOW = 1_795_225_197.5


RedisHolds = Callable[..., None]


@pytest.fixture
def redis_holds(monkeypatch: pytest.MonkeyPatch) -> RedisHolds:
    """Let Redis hold these queues."""

    def hold(*queues: QueueView) -> None:
        counted = dict.fromkeys(COUNTERS, 0) | {"processed": 120, "failed": 7}
        seen = Overview(NOW, counted, 3, 4, 5, 6, 2, list(queues), [])

        def overview(keys: Keys, search: Search | None) -> Steps[Overview]:
            yield from ()
            return seen

        monkeypatch.setattr(api_stats, "overview", overview)
        monkeypatch.setattr(ProcessSet, "refresh", lambda self: None)
        monkeypatch.setattr("time.time", lambda: NOW)

    return hold


def run(*words: str) -> Result:
    result = CliRunner().invoke(main, [*words, "--url", "redis://127.0.0.1:1/0"])
    assert result.exit_code == 0, result.output
    return result


def test_stats_are_aligned(redis_holds: RedisHolds) -> None:
    redis_holds(QueueView("a", 10, 1, None))
    assert run("stats").output.splitlines()[:3] == [
        "processed    120",
        "failed         7",
        "expired        0",
    ]


def test_queues_are_aligned_columns_with_units(redis_holds: RedisHolds) -> None:
    redis_holds(
        QueueView("default", 1234, 2, NOW - 90.26, rate_per_min=12.04),
        QueueView("m", 0, 0, None, paused=True, served=False),
    )
    assert run("queues").output.splitlines() == [
        "queue    size  latency (s)  jobs/min  in progress  state",
        "default  1234         90.3      12.0            2",
        "m           0          0.0                      0  paused, unserved",
    ]


@pytest.mark.parametrize(("enqueued_at", "latency_s"), [(NOW - 60, 60.0), (NOW + 60, 0.0), (None, 0.0)])
def test_the_latency_is_the_age_of_the_next_job(
    enqueued_at: float | None, latency_s: float, redis_holds: RedisHolds
) -> None:
    redis_holds(QueueView("default", 1, 0, enqueued_at))
    [queue] = Stats.fetch(None).queues
    assert queue.latency_s(NOW) == pytest.approx(latency_s)


def test_the_oldest_job_is_that_of_all_queues(redis_holds: RedisHolds) -> None:
    redis_holds(QueueView("a", 1, 0, NOW - 5), QueueView("b", 1, 0, NOW - 60), QueueView("c", 1, 0, None))
    found = Stats.fetch(None)
    assert found.oldest is not None
    assert found.oldest.name == "b"
    assert found.as_dict()["oldest"] == {"queue": "b", "age_s": 60.0}
