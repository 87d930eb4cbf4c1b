"""A wait ends by its deadline, also if a test has frozen the clocks of Python."""

from __future__ import annotations

import time

import pytest

from pyworkers import Client, QueueFullError, ResultTimeout


def test_waits_end_under_a_frozen_clock(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(redis_url, namespace=namespace) as client:
        jid = client.enqueue("q", "job", [], track=60)
        for name in ("monotonic", "time", "perf_counter"):
            now = getattr(time, name)()
            monkeypatch.setattr(time, name, lambda now=now: now)
        with pytest.raises(ResultTimeout):
            client.result(jid, timeout=0.2)
        with pytest.raises(QueueFullError):
            client.enqueue("q", "job", [], max_waiting=1, wait=0.2)
