"""Typed arguments through a real server, and the program of contrib/docs/types.md."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyworkers import Client
from pyworkers.api import RetrySet
from pyworkers.config.fields import RedisConfig
from tests.helpers import warm
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import ROOT, wait_for

PAGE = (ROOT / "contrib" / "docs" / "types.md").read_text()
CODE = """
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elsewhere import Unknown

@dataclass
class Order:
    number: int
    price: Decimal

@worker.job(queue="q")
def bill(order: Order, day: date, *more: date) -> None:
    note("bill", repr(order), repr(day), repr(more), "pydantic" in sys.modules)

@worker.job(queue="q")
async def later(order: "Order | None") -> None:
    note("later", repr(order))

@worker.job(queue="q")
def odd(value: "Unknown") -> None:
    note("odd", value)
"""


@pytest.fixture
def server(serve_either: Serve) -> Iterator[ServerProcess]:
    with serve_either(CODE) as running:
        yield running


def test_a_job_gets_its_types(server: ServerProcess, redis_url: str, namespace: str) -> None:
    client = Client(redis_url, namespace=namespace)
    order = {"number": 7, "price": "1.10"}
    client.enqueue("q", "bill", [order, "2026-01-02", "2026-01-03"])
    client.enqueue("q", "later", [order])
    client.enqueue("q", "odd", [{"any": "thing"}])
    shown = "Order(number=7, price=Decimal('1.10'))"
    days = "(datetime.date(2026, 1, 3),)"
    server.wait_for_notes(1, "bill", shown, "datetime.date(2026, 1, 2)", days, True)
    server.wait_for_notes(1, "later", shown)
    server.wait_for_notes(1, "odd")
    ignored = server.events("types.ignored")
    assert [(event["job"], event["parameter"]) for event in ignored] == [("odd", "value")]
    assert "Unknown" in ignored[0]["reason"]


@pytest.mark.fault("P8")
def test_what_arrives_wrong_goes_back_for_another_server(
    server: ServerProcess, redis_url: str, namespace: str
) -> None:
    client = Client(redis_url, namespace=namespace)
    client.enqueue("q", "bill", [{"number": 7, "price": "a-card-number"}, "2026-01-02"])
    retries = RetrySet(RedisConfig(redis_url, namespace))
    wait_for(lambda: len(retries) == 1, message="the job waits for its retry")
    (job,) = retries
    assert job.error_class == "BadArgumentError"
    assert job.error_message.startswith("args[0]['price'] does not fit Order: ")
    assert [event["misfits"] for event in server.events("job.misfit")] == [1]
    assert "a-card-number" not in server.log_text()


def test_the_program_of_the_page_runs(tmp_path: Path, redis_url: str, namespace: str) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "tasks.py").write_text(program)
    settings = {"PYWORKERS_REDIS__URL": redis_url, "PYWORKERS_REDIS__NAMESPACE": namespace}
    environment = os.environ | settings | {"PYTHONPATH": str(ROOT)}
    done = warm.run([str(tmp_path / "tasks.py")], cwd=ROOT, env=environment)
    done.check_returncode()
    assert "args[2][0]['amount'] does not fit" in done.stdout
    server = ServerProcess(tmp_path, redis_url, namespace)
    try:
        server.start()
        for words in ("7 owes 3.30 EUR on Friday", "8 owes 3.30 USD on Saturday", "lunch at 0:00:00"):
            server.wait_for_output(f"{words}\n")
        assert server.stop() == 0
    finally:
        server.kill()
