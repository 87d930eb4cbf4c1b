"""What holds for every test of the server: a job changes its state as the table of transitions allows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyworkers.server.pool.delivery import NEXT, Delivery


@pytest.fixture(autouse=True)
def _allowed_transitions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    wrong: list[str] = []

    def change(job: Delivery, name: str, value: object) -> None:
        if name == "state" and value not in NEXT[job.state]:
            wrong.append(f"{job.state.name} to {value}: {job.raw[:200]!r}")
        object.__setattr__(job, name, value)

    monkeypatch.setattr(Delivery, "__setattr__", change)
    yield
    assert wrong == []
