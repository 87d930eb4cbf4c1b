"""Marks of deployments: the keys of Sidekiq::Deploy, once a minute; and what other programs have written."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
import redis

from pyworkers.api import DeploySet
from pyworkers.errors import BadArgumentError
from pyworkers.protocol.keys import Keys
from tests.store.conftest import Cli


def test_a_deployment_is_marked_once_by_several_hosts_as_sidekiq_marks_it(
    cli: Cli, db: redis.Redis, redis_url: str, namespace: str
) -> None:
    deploys = DeploySet(redis_url, namespace=namespace)
    assert deploys.mark("v1.4.2") and not deploys.mark("v1.4.2")
    [mark] = deploys
    at = datetime.fromtimestamp(mark.at, UTC)
    assert (mark.label, at.second, time.time() - mark.at < 180) == ("v1.4.2", 0, True)
    key = Keys(namespace).marks(f"{at:%Y%m%d}")
    assert db.hgetall(key) == {f"{at:%Y-%m-%dT%H:%M:00Z}".encode(): b"v1.4.2"}
    assert 89 * 86_400 < db.ttl(key) <= 90 * 86_400
    assert 0 < db.ttl(Keys(namespace).deploy_lock("v1.4.2")) <= 60
    assert json.loads(cli("deploys", "--json").output) == [{"at": mark.at, "label": "v1.4.2"}]
    assert "is marked already" in cli("deploys", "mark", "v1.4.2").output
    assert "deploy.mark" in cli("audit").output


@pytest.mark.parametrize("label", ["", "  ", "a\nb", "x" * 201])
def test_a_label_is_a_short_printable_text(redis_url: str, namespace: str, label: str) -> None:
    with pytest.raises(BadArgumentError, match="printable"):
        DeploySet(redis_url, namespace=namespace).mark(label)


def test_what_no_mark_is_is_left_out(db: redis.Redis, redis_url: str, namespace: str) -> None:
    now = datetime.now(UTC)
    stamps = {"": "a", "yesterday": "b", "9999-99-99": "c", b"\xff": "d", f"{now:%Y-%m-%d}T00:00:00": "e"}
    db.hset(Keys(namespace).marks(f"{now:%Y%m%d}"), mapping=stamps)  # type: ignore[arg-type]
    assert [one.label for one in DeploySet(redis_url, namespace=namespace)] == ["e"]
