"""``pyworkers queues``: the queues and how they keep up.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import click

from pyworkers.api import Queue
from pyworkers.cli.options import Source, config_options

_HEADER = ("queue", "size", "latency (s)", "in progress")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of objects.")
@config_options
def queues(source: Source, as_json: bool) -> None:
    """Show the queues: size, latency, jobs in progress.

    size counts the jobs that wait; latency is for how many seconds the next of them has been waiting.
    """
    found = Queue.all(source.redis())
    now = time.time()
    click.echo(json.dumps([_entry(queue, now) for queue in found]) if as_json else _shown(found, now))


def _entry(queue: Queue, now: float) -> dict[str, object]:
    return {
        "name": queue.name,
        "size": queue.size,
        "latency_s": round(queue.latency_s(now), 3),
        "in_progress": queue.in_progress,
    }


def _shown(found: Sequence[Queue], now: float) -> str:
    if not found:
        return "No queues: nothing has been enqueued yet, and no server runs."
    rows = [_HEADER, *(_row(queue, now) for queue in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _row(queue: Queue, now: float) -> tuple[str, str, str, str]:
    # Other producers may name a queue as they like, also with the control sequences of a terminal.
    name = queue.name if queue.name.isprintable() else ascii(queue.name)
    return name, str(queue.size), f"{queue.latency_s(now):.1f}", str(queue.in_progress)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *numbers = row
    return "  ".join(
        [name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True))]
    )
