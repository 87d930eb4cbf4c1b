"""The application that ``make run`` serves: every kind of handler, and something to see within seconds.

Try it from a second terminal:

    .venv/bin/pyworkers enqueue default greet '["you"]' --config conf/workers.toml
    .venv/bin/pyworkers stats --config conf/workers.toml
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import structlog

from pyworkers import Message, Worker

log = structlog.get_logger()
# A program that imports this and enqueues finds the same Redis as the server.
worker = Worker(config=Path(__file__).parents[3] / "conf" / "workers.toml")


@worker.cron("every 3s")
@worker.job(queue="default")
def tick() -> None:
    """Runs every three seconds, and hands work to the other queue."""
    number = random.randint(1, 99)
    greet.enqueue(f"visitor {number}")
    send_mail.enqueue(number, subject="welcome")


@worker.job(queue="default", timeout=10)
def greet(name: str) -> None:
    log.info("greeting", text=f"hello, {name}")


@worker.job(queue="mail", retry=5, retry_in=lambda count, error, message: 2.0 * (count + 1))
def send_mail(user_id: int, subject: str) -> None:
    time.sleep(0.2)
    if random.random() < 0.2:
        # Not caught here: the job comes back by itself, see `job.failed` and `attempt` in the log.
        raise ConnectionError("the mail server is busy")
    log.info("mail.sent", user_id=user_id, subject=subject)


@worker.process("myqueue", concurrency=2)
def handle(message: Message) -> None:
    """go-workers' shape: one handler owns a queue, for all classes that a Go or Ruby service names."""
    log.info("handled", job_class=message.job_class, count=len(message.args))
