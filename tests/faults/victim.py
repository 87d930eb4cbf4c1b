"""The application that the attack runs on: handlers that take any job, and do what its class says."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from pyworkers import Discard, JobCancelled, Message, Snooze, Worker, current_message
from tests.faults.ledger import LEDGER_VARIABLE, Ledger

MODE = os.environ["FAULTS_MODE"]
worker = Worker()
ledger = Ledger(Path(os.environ[LEDGER_VARIABLE]))


def _act(message: Message[Any]) -> Any:
    match message.job_class:
        case "raise":
            raise ValueError("\ud800", message.args)
        case "exit":
            raise SystemExit(3)
        case "vanish":
            os._exit(3)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "discard":
            raise Discard("\udfff")
        case "cancel":
            raise JobCancelled("asked")
        case "snooze" if message.attempt == 0 and not Path(f"{ledger.path}.{token(message)}").exists():
            Path(f"{ledger.path}.{token(message)}").touch()
            raise Snooze(0.2)
        case "echo":
            return {"args": message.args, "text": "\ud800"}
    return None


def token(message: Message[Any]) -> str:
    """By which the attacker tells its payloads apart, whatever else is odd in them."""
    return str(message.data.get("token"))


async def _handle(message: Message) -> Any:
    ledger.note("start", token(message))
    try:
        if message.job_class == "hang":
            await asyncio.sleep(60)
        found = _act(message)
    except Exception:
        ledger.note("raise", token(message))
        raise
    ledger.note("end", token(message))
    return found


def _run(message: Message) -> Any:
    return asyncio.run(_handle(message))


handle: Any = _handle if MODE == "async" else _run
RATE = worker.limit("rate", rate=50, per=1.0)
SLOTS = worker.limit("slots", concurrency=2)


def _retry_in(*_: Any) -> float:
    return 0.2


def _declare(queue: str, **options: Any) -> None:
    worker.process(f"{MODE}-{queue}", timeout=1, retry_in=_retry_in, **options)(handle)


_declare("any", mode=MODE, concurrency=4)
_declare("plain", mode=MODE, concurrency=1)
_declare("capped", mode=MODE, concurrency=2, limits=[SLOTS, RATE])
_declare("ordered", ordered=True)


@worker.job(name="echo", queue=f"{MODE}-jobs", concurrency=2, mode=MODE, timeout=1, retry_in=_retry_in)  # type: ignore[call-overload,untyped-decorator,unused-ignore]
def echo(number: int, *, text: str = "") -> Any:
    """A function with types: what does not fit it goes back for another server."""
    message = current_message()
    ledger.note("end", token(message))
    return [number, text]
