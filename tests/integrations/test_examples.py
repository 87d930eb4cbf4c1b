"""The examples with FastAPI and Flask, run as a user does: a web server, and ``pyworkers run``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.support import ROOT, free_port, wait_for
from tests.integrations.programs import fetch, running

EXAMPLES = ROOT / "contrib/examples"
WEB = {
    "fastapi": ("uvicorn", "orders:app", "--port"),
    "flask": ("flask", "--app", "orders", "run", "--port"),
}


@pytest.mark.parametrize("framework", sorted(WEB))
def test_an_order_is_confirmed_by_a_job(
    framework: str, tmp_path: Path, one_redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", one_redis_url)
    monkeypatch.setenv("PYWORKERS_REDIS__NAMESPACE", namespace)
    monkeypatch.setenv("SHOP_DB", str(tmp_path / "orders.sqlite3"))
    monkeypatch.chdir(EXAMPLES / framework)
    port = free_port()
    orders = f"http://127.0.0.1:{port}/orders"
    log = tmp_path / "server.log"
    with (
        running(tmp_path / "web.log", [sys.executable, "-m", *WEB[framework], str(port)]),
        running(log, [sys.executable, "-m", "pyworkers", "run", "--config", "workers.toml"]),
    ):
        wait_for(lambda: fetch(f"{orders}/0"), message="the web server answers")
        created = fetch(f"{orders}?customer=ann", b"")
        assert fetch(orders, b"") == {"code": 400}
        order = wait_for(lambda: confirmed(f"{orders}/{created['order']}"))
        assert order["customer"] == "ann"
        wait_for(lambda: '"job.done"' in log.read_text(), message="the log line of the job")
    assert log.read_text().count('"job.done"') == 1
    assert created["jid"] in log.read_text()


def confirmed(url: str) -> Mapping[str, Any] | None:
    order: Mapping[str, Any] = fetch(url)
    return order if order["status"] == "confirmed" else None
