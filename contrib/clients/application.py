"""The application that the tests and the examples of the clients call.

Run by ``pyworkers run --app application:worker``. It imports nothing of a client.
"""

from __future__ import annotations

import time
from typing import Any

from pyworkers import Worker, current_message

worker = Worker()


@worker.job(queue="clients", concurrency=2)
def echo(*args: Any) -> list[Any]:
    """Return the arguments."""
    return list(args)


@worker.job(queue="clients")
def charge(order: int, currency: str = "EUR") -> dict[str, Any]:
    """Return a receipt."""
    return {"order": order, "currency": currency, "paid": True}


@worker.job(queue="clients")
def add(one: int, other: int) -> int:
    """Return the sum."""
    return one + other


@worker.job(queue="clients", retry=0)
def fail(reason: str) -> None:
    """Raise an error; not retried."""
    raise ValueError(reason)


@worker.job(queue="slow", concurrency=1)
def nap(seconds: float) -> str:
    """Report progress, and sleep."""
    message = current_message()
    message.progress(1, 2, "asleep")
    time.sleep(seconds)
    return message.jid
