"""What a server costs Redis: ``python -m contrib.bench.sizing`` prints two tables, in ten minutes.

Commands inside scripts count. The numbers are counts, so that a busy machine changes only how many jobs one
exchange has.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from contrib.bench.broker import Broker, running_broker
from contrib.bench.machine import environment, pss_mb, tree

_DEADLINE_S = 120
# A minute has all that an idle server does, and the first seconds of a server are another thing.
_SETTLING_S, _IDLE_S = 8, 60

_QUEUES = """
for number in range({queues}):
    worker.process(f"q{{number}}", concurrency=1)(print)
"""
_AUTO = """
for number in range({queues}):
    worker.process(f"q{{number}}", concurrency=1, processes="auto")(print)
"""
_GROUP = """
worker.group("all", queues=[f"q{{number}}" for number in range({queues})], concurrency=1)
for number in range({queues}):
    worker.process(f"q{{number}}")(print)
"""
_JOB = """
@worker.job(queue="q", concurrency=10{options})
def job(number):
    {body}
"""
_BURST = """
for start in range(0, {jobs}, 1000):
    job.enqueue_bulk([(number,) for number in range(start, min(start + 1000, {jobs}))])
"""
_SINGLY = """
import time
for number in range({jobs}):
    job.enqueue(number)
    time.sleep(0.02)
"""

IDLE = (
    ("1 queue", _QUEUES, 1),
    ("10 queues", _QUEUES, 10),
    ("50 queues", _QUEUES, 50),
    ("a group of 50 queues", _GROUP, 50),
    ("a group of 1,000 queues", _GROUP, 1000),
    ('1,000 queues, processes="auto"', _AUTO, 1000),
)
JOBS = (
    ("one by one, 50/s", "", "pass", _SINGLY, 500),
    ("in bulk", "", "pass", _BURST, 20_000),
    ("in bulk, unique_for", ", unique_for=60", "pass", _BURST, 5000),
    ("in bulk, track, with a result", ", track=60", "return number", _BURST, 5000),
)


def main() -> None:
    """Print both tables."""
    with tempfile.TemporaryDirectory() as name, running_broker(Path(name)) as broker:
        folder = Path(name)
        print(
            "| idle, with | commands/s | connections | bytes/s | processes | MB |\n|---|---|---|---|---|---|"
        )
        for title, application, queues in IDLE:
            with _serving(broker, folder, application.format(queues=queues)) as pid:
                print(f"| {title} | {_idle(broker, pid)} |", flush=True)
        print("\n| jobs | commands each | bytes each |\n|---|---|---|")
        for title, options, body, produce, jobs in JOBS:
            with _serving(broker, folder, _JOB.format(options=options, body=body)):
                commands, sent = _cost(broker, partial(_run_jobs, broker, folder, produce, jobs))
                print(f"| {title} | {commands / jobs:.1f} | {sent / jobs:.0f} |", flush=True)


@contextmanager
def _serving(broker: Broker, folder: Path, application: str) -> Iterator[int]:
    """The pid of a server with this application, on an empty Redis."""
    broker.client.flushall()
    declared = f"from pyworkers import Worker\nworker = Worker({broker.url!r})\n{application}"
    (folder / "sized.py").write_text(declared)
    words = ("run", "--app", "sized:worker", "--url", broker.url, "--log-level", "error")
    with subprocess.Popen([sys.executable, "-m", "pyworkers", *words], cwd=folder, env=_env()) as process:
        try:
            _until(lambda: bool(broker.client.scard("processes")))
            time.sleep(_SETTLING_S)
            yield process.pid
        finally:
            process.terminate()


def _env() -> dict[str, str]:
    return {**environment(), "PYTHONPATH": str(Path(__file__).parents[2])}


def _idle(broker: Broker, pid: int) -> str:
    commands, sent = _cost(broker, partial(time.sleep, _IDLE_S))
    connections = int(broker.client.info("clients")["connected_clients"]) - 1
    pids = tree([pid])
    per_s = f"{commands / _IDLE_S:.2f} | {connections} | {sent / _IDLE_S:.0f}"
    return f"{per_s} | {len(pids)} | {pss_mb(pids):.0f}"


def _run_jobs(broker: Broker, folder: Path, produce: str, jobs: int) -> None:
    script = f"from sized import job\n{produce.format(jobs=jobs)}"
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=_env(), check=True)
    client = broker.client

    def is_done() -> bool:
        places = client.llen("queue:q") + client.zcard("retry") + client.zcard("schedule")
        return not places and not any(client.llen(name) for name in client.scan_iter("queue:q:*"))

    _until(is_done)


def _cost(broker: Broker, work: Callable[[], object]) -> tuple[int, int]:
    """The commands and the bytes of some work, without those of this program's INFO."""
    before = _counted(broker)
    work()
    commands, sent = (now - then for now, then in zip(_counted(broker), before, strict=True))
    return commands, sent


def _counted(broker: Broker) -> tuple[int, int]:
    stats = broker.client.info("stats")
    calls = {name: row["calls"] for name, row in broker.client.info("commandstats").items()}
    # Those with which this program looks whether all jobs are done.
    own = sum(calls.get(f"cmdstat_{name}", 0) for name in ("info", "llen", "zcard", "scan", "scard"))
    return sum(calls.values()) - own, stats["total_net_input_bytes"] + stats["total_net_output_bytes"]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_DEADLINE_S} s")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
