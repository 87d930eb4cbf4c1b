"""The command line of the benchmarks.

python -m contrib.bench                          all measurements, all peers
python -m contrib.bench run --peers celery,huey --measures noop,latency
python -m contrib.bench targets                  pyworkers and the peers of its targets: rows of ratios
python -m contrib.bench targets --rows noop,latency,latency-p99
python -m contrib.bench install                  the peers, and nothing else
python -m contrib.bench report                   tables and pictures again, from the raw results
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyworkers
from contrib.bench import machine, report, targets
from contrib.bench.broker import running_broker
from contrib.bench.loads import Numbers
from contrib.bench.measures import MEASURES, Measure
from contrib.bench.peer import Peer
from contrib.bench.registry import PEERS
from contrib.bench.site import Failed, Site
from contrib.bench.targets import TARGETS

RESULTS = Path(__file__).parent / "results"

Results = dict[str, Any]
Wanted = Mapping[str, Sequence[str]]
"""The names of the peers for each measurement."""


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    wanted = _wanted(options)
    if options.command == "install":
        return 1 if install(wanted)[1] else 0
    folder = options.out or (RESULTS / "targets" if options.command == "targets" else RESULTS)
    results = load(folder)
    if options.command != "report":
        take(wanted, options, folder, results)
    save(folder, results)
    if options.page:
        options.page.write_text(report.splice(options.page.read_text(), report.tables(results)))
    print(report.tables(results))
    rows = [TARGETS[name] for name in options.rows or TARGETS]
    print(targets.table(results, [row for row in rows if row.measure in results["measures"]]))
    return 0


def take(wanted: Wanted, options: argparse.Namespace, folder: Path, results: Results) -> None:
    """Install the peers, take the measurements, and save the results after each."""
    peers, missing = install(wanted)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    results["missing"] |= missing
    results["peers"] |= {name: _about(peer) for name, peer in peers.items()}
    this = {"machine": machine.describe(), "ours": pyworkers.__version__}
    plan = [
        (MEASURES[measure], [peers[name] for name in names if name in peers])
        for measure, names in wanted.items()
    ]
    for found in run(plan, options.rounds, options.scale):
        results["measures"] |= {name: measured | this for name, measured in found.items()}
        save(folder, results)


def load(folder: Path) -> Results:
    """The raw results in the folder, to which measurements are added; empty ones if there are none."""
    path = folder / "results.json"
    if path.exists():
        results: Results = json.loads(path.read_text())
        return results
    return {"measures": {}, "peers": {}, "missing": {}}


def save(folder: Path, results: Results) -> None:
    """Write ``results.json`` and a picture for each measurement."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    for name, measured in results["measures"].items():
        (folder / f"{name}.svg").write_text(report.picture(MEASURES[name], measured["peers"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="contrib.bench", description="Benchmarks; see contrib/bench/README.md."
    )
    commands = ("run", "targets", "install", "report")
    parser.add_argument("command", nargs="?", choices=commands, default="run")
    parser.add_argument("--peers", type=_names(PEERS), default=list(PEERS), help=", ".join(PEERS))
    usual = [name for name, measure in MEASURES.items() if not measure.rare]
    parser.add_argument("--measures", type=_names(MEASURES), default=usual, help=", ".join(MEASURES))
    parser.add_argument(
        "--rows", type=_names(TARGETS), default=[], help=f"of the targets: {', '.join(TARGETS)}"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each pair is measured in turn")
    parser.add_argument("--scale", type=float, default=3.0, help="seconds that a load lasts, roughly")
    parser.add_argument("--out", type=Path, help="folder of results.json, tables and pictures; added to")
    parser.add_argument("--page", type=Path, help="a page that gets the tables between its marks")
    return parser


def _names(known: dict[str, Any]) -> Any:
    def names(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: known are {', '.join(known)}")
        return found

    return names


def _wanted(options: argparse.Namespace) -> Wanted:
    if options.command == "targets":
        return targets.needed(TARGETS[name] for name in options.rows or targets.USUAL)
    measures = [MEASURES[name] for name in options.measures]
    return {measure.name: _fitting(measure, options.peers) for measure in measures}


def _fitting(measure: Measure, names: Sequence[str]) -> list[str]:
    """These peers, if they take part, after the one that they are compared with."""
    return [name for name in dict.fromkeys((measure.base, *names)) if measure.fits(PEERS[name])]


def install(wanted: Wanted) -> tuple[dict[str, Peer], dict[str, str]]:
    """Install the peers; those that are ready, and why the others are not, by name."""
    ready, missing = {}, {}
    for name in dict.fromkeys(name for names in wanted.values() for name in names):
        peer = PEERS[name]
        try:
            peer.environment.install()
        except RuntimeError as error:
            missing[name] = str(error)
            print(f"{name} was not installed: {error}", file=sys.stderr)
        else:
            ready[name] = peer
            print(f"{name}: {peer.environment.versions()}", flush=True)
    return ready, missing


def _about(peer: Peer) -> dict[str, str]:
    return {
        "versions": peer.environment.versions(),
        "delivery": peer.delivery,
        "settings": peer.settings,
    }


def run(plan: Sequence[tuple[Measure, Sequence[Peer]]], rounds: int, scale: float) -> Iterator[Results]:
    """Take the measurements, the peers in turn within each round; yield one after the other."""
    with (
        tempfile.TemporaryDirectory(prefix="pyworkers-bench-") as folder,
        running_broker(Path(folder)) as broker,
    ):
        site = Site(broker, Path(folder))
        for measure, peers in plan:
            found: dict[str, list[Numbers | None]] = {peer.name: [] for peer in peers}
            failures: list[str] = []
            for number in range(rounds):
                for peer in peers:
                    numbers = _take(site, measure, peer, scale, failures)
                    found[peer.name].append(numbers)
                    print(f"{measure.name} {number + 1}/{rounds} {peer.name}: {_short(numbers)}", flush=True)
            yield {
                measure.name: {
                    "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
                    "redis": broker.version(),
                    "rounds": rounds,
                    "scale": scale,
                    "peers": found,
                    "failures": failures,
                }
            }


def _take(site: Site, measure: Measure, peer: Peer, scale: float, failures: list[str]) -> Numbers | None:
    try:
        return measure.take(site, peer, scale)
    except Failed as error:
        failures.append(f"{peer.name}: {error}")
        print(failures[-1], file=sys.stderr)
        return None


def _short(numbers: Numbers | None) -> str:
    return "failed" if numbers is None else " ".join(f"{key}={value:.4g}" for key, value in numbers.items())


if __name__ == "__main__":
    sys.exit(main())
