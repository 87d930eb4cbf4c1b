"""Producers with several Redis servers: where jobs go, what is asked of all, what is refused."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers import AsyncClient, Client, Worker, chain, parallel
from pyworkers.config import own_redis
from pyworkers.config.fields import RedisConfig
from pyworkers.config.stores import Stores
from pyworkers.errors import BadArgumentError, DeclarationError, RedisUnavailableError
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import Cancelled
from tests.helpers.support import free_port


@pytest.fixture
def stores(redis_url: str, namespace: str) -> Stores:
    """Two namespaces of one Redis stand for two servers: ``reports`` is on ``archive``."""
    by_name = {
        "default": RedisConfig(redis_url, namespace),
        "archive": RedisConfig(redis_url, f"{namespace}archive:"),
    }
    return Stores(by_name, {"reports": "archive", "old": "archive"})


@pytest.fixture
def worker(stores: Stores, tmp_path: Path) -> Worker:
    """An application with a job for each Redis."""
    file = tmp_path / "workers.toml"
    default, archive = stores.by_name.values()
    file.write_text(
        f'[redis]\nurl = "{default.url}"\nnamespace = "{default.namespace}"\n'
        f'[redis.archive]\nurl = "{archive.url}"\nnamespace = "{archive.namespace}"\n'
        '[queues.reports]\nredis = "archive"\n[queues.old]\nredis = "archive"\n'
    )
    app = Worker(config=file)
    app.job(queue="mail")(mail)
    app.job(queue="reports")(report)
    return app


def mail(number: int = 0) -> None: ...


def report(number: int = 0) -> None: ...


@pytest.fixture
def length(db: redis.Redis, stores: Stores) -> Callable[[str, str], int]:
    """The number of jobs of a queue, or in ``schedule``, at a Redis."""

    def count(name: str, queue: str) -> int:
        keys = Keys(stores.by_name[name].namespace)
        if queue == "schedule":
            return int(db.zcard(keys.schedule))
        return int(db.llen(keys.queue(queue)))

    return count


def called(kind: type[Client] | type[AsyncClient], stores: Stores, method: str, *args: Any, **kw: Any) -> Any:
    """The result of a call of a client."""
    if kind is Client:
        with Client(stores) as client:
            return getattr(client, method)(*args, **kw)

    async def call() -> Any:
        async with AsyncClient(stores) as client:
            found = getattr(client, method)(*args, **kw)
            return await found if inspect.isawaitable(found) else found

    return asyncio.run(call())


KINDS = pytest.mark.parametrize("kind", [Client, AsyncClient])


@KINDS
def test_a_job_goes_to_the_redis_of_its_queue(
    kind: type[Client] | type[AsyncClient], stores: Stores, length: Callable[[str, str], int]
) -> None:
    called(kind, stores, "enqueue", "mail", "mail", [1])
    called(kind, stores, "enqueue", "reports", "report", [2])
    called(kind, stores, "enqueue_in", 60, "reports", "report", [3])
    called(kind, stores, "enqueue_bulk", "old", "report", [[n] for n in range(5)])
    queues = ("mail", "reports", "old", "schedule")
    assert [length("default", queue) for queue in queues] == [1, 0, 0, 0]
    assert [length("archive", queue) for queue in queues] == [0, 1, 5, 1]


@KINDS
def test_what_is_known_by_an_id_is_asked_of_all(
    kind: type[Client] | type[AsyncClient], stores: Stores
) -> None:
    tracked = called(kind, stores, "enqueue", "reports", "report", [1], track=60, history=True)
    plain = called(kind, stores, "enqueue", "reports", "report", [1])
    assert called(kind, stores, "status", tracked).state == "waiting"
    assert called(kind, stores, "history", tracked) is not None
    assert called(kind, stores, "find", plain).state == "waiting"
    assert called(kind, stores, "cancel", plain) is Cancelled.REMOVED
    assert called(kind, stores, "cancel", plain) is Cancelled.UNKNOWN
    assert called(kind, stores, "status", plain).state == "unknown"


@KINDS
def test_a_redis_that_is_away_is_an_error_unless_another_one_knows_the_job(
    kind: type[Client] | type[AsyncClient], stores: Stores
) -> None:
    tracked = called(kind, stores, "enqueue", "reports", "report", [1], track=60)
    away = stores.with_default(RedisConfig(f"redis://127.0.0.1:{free_port()}/0"))
    assert called(kind, away, "status", tracked).state == "waiting"
    assert called(kind, away, "find", tracked).state == "waiting"
    for method in ("status", "find", "cancel", "history"):
        with pytest.raises(RedisUnavailableError):
            called(kind, away, method, "0" * 24)
    # Its queues are refused, those of the other Redis are not.
    called(kind, away, "enqueue", "reports", "report", [1])
    with pytest.raises(RedisUnavailableError):
        called(kind, away, "enqueue", "mail", "mail", [1])


@KINDS
def test_retries_stay_in_one_redis(kind: type[Client] | type[AsyncClient], stores: Stores) -> None:
    called(kind, stores, "enqueue", "reports", "report", [1], retry_queue="old")
    with pytest.raises(BadArgumentError, match="'reports' is on 'archive' and the queue 'mail' is on 'def"):
        called(kind, stores, "enqueue", "reports", "report", [1], retry_queue="mail")


def test_a_batch_is_in_the_redis_of_its_members(worker: Worker, length: Callable[[str, str], int]) -> None:
    reports, mails = worker._producers["report"], worker._producers["mail"]
    with worker.batch("of reports", on_success=reports.call(2)) as batch:
        reports.enqueue(1)
    assert batch.status().total == 1
    assert length("archive", "reports") == 1
    done = chain(reports.call(1), parallel(reports.call(2), reports.call(3))).enqueue()
    assert done.status().kind == "chain"
    with (
        pytest.raises(BadArgumentError, match="a batch, chain or group is on one Redis") as caught,
        worker.batch(),
    ):
        reports.enqueue(1)
        mails.enqueue(2)
    assert "the queue 'reports' is on 'archive' and the queue 'mail' is on 'default'" in str(caught.value)
    with pytest.raises(BadArgumentError, match="on one Redis"), worker.batch(on_success=mails.call(1)):
        reports.enqueue(1)
    for canvas in (
        chain(reports.call(1), reports.call(2), mails.call(3)),
        chain(parallel(reports.call(1), reports.call(2)), mails.call(3)),
        parallel(reports.call(1), chain(reports.call(2), mails.call(3))),
        parallel(mails.call(1), mails.call(2), on_complete=reports.call(3)),
    ):
        with pytest.raises(BadArgumentError, match="on one Redis"):
            canvas.enqueue()
    assert length("archive", "reports") == 2
    assert length("default", "mail") == 0


def test_a_limit_stays_in_one_redis(worker: Worker) -> None:
    assert worker.manifest()["queues"].keys() == {"mail", "reports"}
    shared = worker.limit("api", rate=5)
    worker.job(queue="mail", name="one", limits=[shared])(lambda: None)
    worker.job(queue="mail", name="two", limits=[shared])(lambda: None)
    worker.manifest()
    worker.job(queue="old", name="three", limits=[shared])(lambda: None)
    with pytest.raises(DeclarationError, match="the limit 'api' is on one Redis: one is on 'default'"):
        worker.manifest()


def test_a_limited_job_stays_in_the_redis_of_its_limit(
    worker: Worker, length: Callable[[str, str], int]
) -> None:
    job = worker.job(queue="mail", name="limited", limits=[worker.limit("api", rate=5)])(mail)
    refused = (
        "the limits of limited count on one Redis: "
        "the queue 'mail' is on 'default' and the queue 'reports' is on 'archive'"
    )
    with Client.of(worker) as client, pytest.raises(BadArgumentError, match=refused):
        client.enqueue("reports", "limited", [1])
    with pytest.raises(BadArgumentError, match=refused):
        asyncio.run(job.options(queue="reports").aenqueue(1))
    with pytest.raises(BadArgumentError, match="the limits of limited"):
        job.options(queue="old", any_queue=True).enqueue(1)
    with pytest.raises(BadArgumentError, match="the limits of limited"):
        chain(job.options(queue="reports").call(1)).enqueue()
    assert length("archive", "reports") == 0
    job.options(queue="other", any_queue=True).enqueue(1)
    assert length("default", "other") == 1
    # A job without limits goes anywhere.
    worker._producers["mail"].options(queue="reports").enqueue(1)
    assert length("archive", "reports") == 1


def test_a_given_url_is_the_redis_of_all_queues(
    stores: Stores, length: Callable[[str, str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    default, archive = stores.by_name.values()
    monkeypatch.setenv("PYWORKERS_REDIS__URL", default.url)
    monkeypatch.setenv("PYWORKERS_REDIS__NAMESPACE", default.namespace)
    monkeypatch.setenv("PYWORKERS_REDIS__ARCHIVE__URL", archive.url)
    monkeypatch.setenv("PYWORKERS_REDIS__ARCHIVE__NAMESPACE", archive.namespace)
    monkeypatch.setenv("PYWORKERS_QUEUES__REPORTS__REDIS", "archive")
    with Client() as client:
        assert client.stores == Stores(stores.by_name, {"reports": "archive"})
        client.enqueue("reports", "report")
    with Client(default.url) as client:
        client.enqueue("reports", "report")
    assert (length("default", "reports"), length("archive", "reports")) == (1, 1)


def test_in_a_job_the_redis_servers_are_those_of_its_server(stores: Stores) -> None:
    fields = [
        {name: getattr(redis, name) for name in ("url", "namespace")} for redis in stores.by_name.values()
    ]
    own_redis.hand_over(fields[0], {"archive": fields[1]}, stores.elsewhere)
    try:
        with Client() as client:
            assert client.stores == stores
    finally:
        own_redis.hand_over(None)
