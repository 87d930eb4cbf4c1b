"""What ``pyworkers top`` shows: the lines of one frame. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyworkers.api import QueueStats, Stats, Work
from pyworkers.cli import processes, workers
from pyworkers.cli.queues import state
from pyworkers.cli.text import duration, fit, printable, table
from pyworkers.store.processes import ProcessView

_QUEUES = ("QUEUE", "SIZE", "LATENCY", "RUNNING", "STATE")
_SERVERS = ("SERVER", "UP", "BUSY", "OF", "MEMORY", "BEAT", "STATE", "QUEUES")
_RUNNING = ("RUNNING", "JID", "QUEUE", "CLASS", "THREAD", "SERVER")
# Blank line, header, and one row of each section.
_LEAST_PER_SECTION = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """What was read at one time (epoch seconds)."""

    at: float
    stats: Stats
    works: Sequence[Work]


def frame(sample: Sample, before: Sample | None, title: str, width: int, height: int | None) -> list[str]:
    """The lines, each as wide as the screen; ``height`` None is for any number of them."""
    stats = sample.stats
    counts = {name: f"{number:,}" for name, number in stats.counts().items()}
    if before is not None and sample.at > before.at:
        for name in ("processed", "failed"):
            counts[name] += f" ({_rate(name, sample, before):,.0f}/s)"
    words = [f"{name} {text}" for name, text in counts.items()]
    head = [title, *_wrapped(words, width)]
    sections = [
        _section(_QUEUES, [_queue(queue, sample.at) for queue in _fullest(stats.queues)], (1, 2, 3)),
        _section(_SERVERS, [processes.row(server, sample.at) for server in _busiest(stats)], (2, 3, 4)),
        _section(_RUNNING, [workers.row(work, sample.at) for work in _longest(sample.works)], ()),
    ]
    lines = [*head, *_shared(sections, None if height is None else height - len(head))]
    return [fit(line, width) for line in lines[:height]]


def _rate(name: str, sample: Sample, before: Sample) -> float:
    now, then = sample.stats.counts()[name], before.stats.counts()[name]
    return max(0, now - then) / (sample.at - before.at)


def _wrapped(words: Sequence[str], width: int) -> list[str]:
    """The words in as few lines as they fit into, two blanks apart."""
    lines = [""]
    for word in words:
        longer = f"{lines[-1]}  {word}" if lines[-1] else word
        if len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _section(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    return ["", *table(header, rows, right=right)] if rows else []


def _shared(sections: Sequence[list[str]], height: int | None) -> list[str]:
    """All sections, cut so that they fit: the longest one gives first."""
    if height is None:
        return [line for section in sections for line in section]
    sizes = [len(section) for section in sections]
    while sum(sizes) > height and max(sizes) > _LEAST_PER_SECTION:
        sizes[sizes.index(max(sizes))] -= 1
    return [line for section, size in zip(sections, sizes, strict=True) for line in _cut(section, size)]


def _cut(section: Sequence[str], size: int) -> list[str]:
    if len(section) <= size:
        return list(section)
    return [*section[: size - 1], f"… {len(section) - size + 1} more"]


def _queue(queue: QueueStats, now: float) -> tuple[str, ...]:
    latency = duration(queue.latency_s(now)) if queue.size else ""
    return printable(queue.name), f"{queue.size:,}", latency, str(queue.in_progress), state(queue)


def _fullest(queues: Sequence[QueueStats]) -> list[QueueStats]:
    return sorted(queues, key=lambda queue: (-queue.size, -queue.in_progress, queue.name))


def _busiest(stats: Stats) -> list[ProcessView]:
    return sorted(stats.servers, key=lambda server: (-server.busy, server.identity))


def _longest(works: Sequence[Work]) -> list[Work]:
    return sorted(works, key=lambda work: (work.run_at, work.jid))
