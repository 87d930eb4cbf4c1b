"""The message of ``assert_enqueued``: the nearest jobs, and what differs."""

from __future__ import annotations

from typing import Any

import pytest

from pyworkers import Worker
from pyworkers.testing import Fake

worker = Worker("redis://127.0.0.1:1/0")


@worker.job
def greet(name: str, loud: bool = False) -> None: ...


@worker.job
def ship(order: dict[str, Any], *notes: str) -> None: ...


@worker.job
def pack(number: int, weight: object = pytest) -> None: ...


def failure(queue: Fake, *wanted: Any, **by_name: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        queue.assert_enqueued(*wanted, **by_name)
    return str(caught.value)


def test_the_nearest_job_comes_first(queue: Fake) -> None:
    greet.enqueue("Ann", False)
    greet.enqueue("Bob", True)
    ship.enqueue({})
    assert failure(queue, greet, "Ann", loud=True).splitlines() == [
        "greet('Ann', True) was not enqueued; waiting: greet('Ann', False), greet('Bob', True), ship({})",
        "the nearest one differs:",
        "    loud: False instead of True",
        "another one:",
        "    name: 'Bob' instead of 'Ann'",
    ]


def test_arguments_that_are_missing_or_too_many(queue: Fake) -> None:
    greet.enqueue("Ann")
    assert failure(queue, greet, "Ann", True).endswith("\n    loud: False instead of True")
    assert failure(queue, "greet", "Ann", True).endswith("\n    argument 2: missing, instead of True")
    ship.enqueue({}, "a", "b")
    assert failure(queue, ship, {}, "a").endswith("\n    argument 3: 'b' instead of nothing")


def test_an_argument_that_is_left_out_has_its_default(queue: Fake) -> None:
    short, long = greet.enqueue("Ann"), greet.enqueue("Bob", False)
    assert queue.assert_enqueued(greet, "Ann", loud=False).jid == short
    assert queue.assert_enqueued(greet, "Bob").jid == long
    pack.enqueue(1)
    assert "pack(1, 2) was not enqueued" in failure(queue, pack, 1, 2)


def test_the_place_inside_of_a_value(queue: Fake) -> None:
    ship.enqueue({"id": 7, "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}], "gift": None})
    wanted = {"id": 7, "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 3}, {"sku": "c"}], "vat": 19}
    assert failure(queue, ship, wanted).splitlines()[2:] == [
        "    order['lines'][1]['n']: 2 instead of 3",
        "    order['lines'][2]: missing, instead of {'sku': 'c'}",
        "    order['vat']: missing, instead of 19",
        "    order['gift']: None instead of nothing",
    ]


def test_of_long_texts_the_part_that_differs_is_shown(queue: Fake) -> None:
    greet.enqueue("x" * 5000 + "Ann" + "y" * 5000)
    last = failure(queue, greet, "x" * 5000 + "Bob" + "y" * 5000).splitlines()[-1]
    x, y = "x" * 15, "y" * 42
    assert last == f"    name: '{x}Ann{y}' (from character 4985) instead of '{x}Bob{y}' (from character 4985)"


def test_no_message_is_endless(queue: Fake) -> None:
    ship.enqueue({str(n): n for n in range(1000)})
    greet.enqueue_bulk([(f"name {n}",) for n in range(500)])
    message = failure(queue, ship, {str(n): -n for n in range(1000)})
    assert "and 989 more differences" in message
    assert "and 491 more jobs" in message
    assert len(message) < 4000


def test_a_job_that_has_run_and_a_name_that_is_nearly_right(queue: Fake) -> None:
    greet.enqueue("Ann")
    assert failure(queue, "great") == "great was not enqueued; waiting: greet('Ann')\ndid you mean greet?"
    queue.drain()
    assert failure(queue, greet, "Ann") == (
        "greet('Ann') was not enqueued; nothing waits\na job like this has run already"
    )
