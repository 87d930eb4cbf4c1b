"""The Python side: writes the receipts that the Ruby service asks for, and hands them to Sidekiq."""

from __future__ import annotations

from pyworkers import Worker

worker = Worker()


@worker.job(queue="receipts", name="WriteReceipt", retry=5)
def write_receipt(order_id: int, email: str) -> None:
    # Sidekiq looks up the class by this name, so it must be a constant there.
    worker.enqueue("archive", "Archive", [order_id, f"receipt for {email}"], retry=5)
