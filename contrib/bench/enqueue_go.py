"""How fast Go enqueues: its client and go-workers2 in turn; in bulk, pipelined LPUSH of the same bytes.

``python -m contrib.bench.enqueue_go``, or with a number of rounds and of jobs. Targets of the ratios: 1 for
plain jobs, 0.8 in bulk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from contrib.bench.broker import running_broker

SOURCE = Path(__file__).parent / "programs" / "go-client"
PEERS = {"plain": "go-workers2", "unique and tracked": "go-workers2", "in bulk": "pipelined LPUSH"}


def main(rounds: str = "7", jobs: str = "3000") -> None:
    """Print the table: medians, and the medians of the ratios within the rounds."""
    with tempfile.TemporaryDirectory() as name, running_broker(Path(name)) as broker:
        program = Path(name) / "go-client"
        subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCE, check=True)
        env = {**os.environ, "BENCH_PORT": str(broker.port)}
        printed = subprocess.run(
            [program, rounds, jobs], env=env, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    found = [json.loads(line) for line in printed.splitlines()]
    print(
        "| jobs | jobs/s | with | jobs/s | ratio | CPU of a job, with Redis | ratio |\n"
        "|---|---|---|---|---|---|---|"
    )
    for name, peer in PEERS.items():
        speed, other = (median(row[one]["jobs_s"] for row in found) for one in (name, peer))
        ratio = median(row[name]["jobs_s"] / row[peer]["jobs_s"] for row in found)
        cpu = median(row[name]["cpu_us"] for row in found)
        cost = median(row[name]["cpu_us"] / row[peer]["cpu_us"] for row in found)
        print(f"| {name} | {speed:,.0f} | {peer} | {other:,.0f} | {ratio:.2f} | {cpu:.1f} µs | {cost:.2f} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
