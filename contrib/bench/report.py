"""Tables and pictures from the raw results. Pure: dictionaries in, text out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from contrib.bench.loads import Numbers
from contrib.bench.measures import BASE, MEASURES, SHARED_BASE, Column, Measure

Rounds = Sequence[Numbers | None]
"""One peer's numbers of each round; None where it failed."""


def tables(results: Mapping[str, Any]) -> str:
    """All results as Markdown."""
    parts = [_HEAD]
    for name, measured in results["measures"].items():
        parts.append(table(MEASURES[name], measured["peers"]))
        parts.append(foot(measured))
    parts.append(_peers(results))
    return "\n\n".join(parts) + "\n"


def about(machine: Mapping[str, Any]) -> str:
    """The machine in one line."""
    virtual = "virtual, " if machine.get("virtual") else ""
    wake = f", us to wake a process: {machine['wake_us']}" if "wake_us" in machine else ""
    return (
        f"{machine['cores']} cores ({virtual}{machine['cpu']}), {machine['memory_mb']} MB, "
        f"Linux {machine['kernel']}, Python {machine['python']}{wake}"
    )


_HEAD = (
    "Redis on the same machine, without persistence. Medians, in parentheses the smallest and largest round; "
    f"the ratio is the median of the rounds' own ratios to {BASE}, or to {SHARED_BASE} in its tables."
)


def foot(measured: Mapping[str, Any]) -> str:
    """How and where it was measured, and what failed."""
    others = [value for rounds in measured["peers"].values() for value in values(rounds, "others_cpus")]
    busy = f", others kept {statistics.median(others):.1f} CPUs busy" if others else ""
    lines = [
        f"{measured['date']}, pyworkers {measured['ours']}, {measured['rounds']} rounds, loads of about "
        f"{measured['scale']:g} s, Redis {measured['redis']}{busy}; {about(measured['machine'])}."
    ]
    lines += [f"Failed: {' '.join(failure.split())[:300]}" for failure in measured["failures"]]
    return "  \n".join(lines)


def table(measure: Measure, by_peer: Mapping[str, Rounds]) -> str:
    """One measurement: a row for each peer, best first."""
    compared = [column for column in measure.columns if column == measure.columns[0] or column.key == "cpu_s"]
    ratios = ["ratio", "ratio of CPU"][: len(compared)]
    heads = ["", *ratios, *(column.head for column in measure.columns)]
    rows = [heads, ["---"] * len(heads)]
    for peer in _ranked(measure, by_peer):
        shares = [_ratio(column.key, by_peer[peer], by_peer.get(measure.base, ())) for column in compared]
        rows.append([peer, *shares, *(_cell(column, by_peer[peer]) for column in measure.columns)])
    lines = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"### {measure.title}\n\n{lines}"


def _ranked(measure: Measure, by_peer: Mapping[str, Rounds]) -> list[str]:
    def rank(peer: str) -> float:
        value = median(by_peer[peer], measure.columns[0].key)
        if value is None:
            return float("inf")
        return -value if measure.more_is_better else value

    return sorted(by_peer, key=rank)


def values(rounds: Rounds, key: str) -> list[float]:
    return [numbers[key] for numbers in rounds if numbers is not None and key in numbers]


def median(rounds: Rounds, key: str) -> float | None:
    found = values(rounds, key)
    return statistics.median(found) if found else None


def _cell(column: Column, rounds: Rounds) -> str:
    found = values(rounds, column.key)
    if not found:
        return "failed" if all(numbers is None for numbers in rounds) else "-"
    failed = sum(numbers is None for numbers in rounds)
    return spread(found, column.digits) + (f", {failed} failed" if failed else "")


def spread(found: Sequence[float], digits: int) -> str:
    """The median, and in parentheses the smallest and the largest."""
    shown = [f"{number:,.{digits}f}" for number in (statistics.median(found), min(found), max(found))]
    return shown[0] + (f" ({shown[1]} to {shown[2]})" if shown[1] != shown[2] else "")


def _ratio(key: str, rounds: Rounds, base: Rounds) -> str:
    found = ratios(rounds, key, base, key)
    return f"{statistics.median(found):.2f}" if found else "-"


def ratios(rounds: Rounds, key: str, base: Rounds, base_key: str) -> list[float]:
    """The ratios within the rounds: a machine that slows down slows both of a pair."""
    return [
        mine[key] / other[base_key]
        for mine, other in zip(rounds, base, strict=False)
        if mine and other and key in mine and other.get(base_key)
    ]


def _peers(results: Mapping[str, Any]) -> str:
    rows = ["| | versions | a killed process's jobs | settings |", "| --- | --- | --- | --- |"]
    for name, peer in results["peers"].items():
        rows.append(f"| {name} | {peer['versions']} | {peer['delivery']} | {peer['settings']} |")
    rows += [
        f"| {name} | not installed: {' '.join(why.split())[:200]} | | |"
        for name, why in results["missing"].items()
    ]
    return "### Peers and their settings\n\n" + "\n".join(rows)


BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def splice(page: str, text: str) -> str:
    """The page with the tables between its two marks. Raises ValueError if it has none."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


# The picture

_BAR, _GAP, _LEFT, _WIDTH, _RIGHT = 18, 6, 150, 380, 110


def picture(measure: Measure, by_peer: Mapping[str, Rounds]) -> str:
    """The first column of a measurement as horizontal bars, an SVG that is readable on light and dark."""
    column = measure.columns[0]
    ranked = [(peer, median(by_peer[peer], column.key)) for peer in _ranked(measure, by_peer)]
    bars = [(peer, value) for peer, value in ranked if value is not None]
    most = max((value for _, value in bars), default=1.0)
    rows = [
        _row(30 + number * (_BAR + _GAP), peer, value / most, f"{value:,.{column.digits}f}")
        for number, (peer, value) in enumerate(bars)
    ]
    height = 36 + len(bars) * (_BAR + _GAP)
    title = f'<text x="4" y="18" font-weight="bold">{escape(measure.title)} ({escape(column.head)})</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + _RIGHT}" height="{height}" '
        f'font-family="sans-serif" font-size="13">\n'
        '<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join([title, *rows]) + "\n</svg>\n"
    )


def _row(top: int, name: str, share: float, label: str) -> str:
    width = max(1, round(share * _WIDTH))
    color = "#c0392b" if name.startswith(BASE) else "#7f8fa6"
    base = top + _BAR - 5
    return (
        f'<text x="{_LEFT - 8}" y="{base}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="{_LEFT}" y="{top}" width="{width}" height="{_BAR}" fill="{color}"/>'
        f'<text x="{_LEFT + width + 6}" y="{base}">{label}</text>'
    )
