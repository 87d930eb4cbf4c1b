"""The Python side: writes the receipts that the Go service asks for, and hands them to the Go worker."""

from __future__ import annotations

from pyworkers import Worker

worker = Worker()


@worker.job(queue="receipts", name="WriteReceipt", retry=5)
def write_receipt(order_id: int, email: str) -> None:
    # `retry` is True here, never a number: go-workers2 loses a failed job with `"retry": 5`.
    worker.enqueue("archive", "Archive", [order_id, f"receipt for {email}"], retry=True, retry_max=5)
