"""Drawing: charts as SVG, without their own scripts or styles; the page around them has the scales.

Pure. A chart is stretched to its place, so its units are the units of its data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from markupsafe import Markup

from pyworkers.web.showing import clock, cut, visible

T = TypeVar("T")
_HEIGHT = 100


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart; ``kind`` is its class in the style sheet."""

    kind: str
    values: Sequence[float | None]
    """None: unknown; in ``lines`` only before the first known one."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart: its parts from the bottom up, each a class in the style sheet and a value."""

    parts: Sequence[tuple[str, float]]
    says: str = ""
    """What it shows, in the words that appear under the pointer."""
    at: str = ""
    """The time at which it begins, in ISO 8601: the script puts it before these words."""
    width: int = 1
    """The units at which the pointer reads these words."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line of a chart: something that has happened. ``place`` is in units from the left end."""

    place: float
    label: str
    at: float
    """In epoch seconds."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, with what the macro ``chart`` writes around it."""

    svg: Markup
    top: float
    """The value at its upper edge."""
    ticks: Sequence[str] = ()
    """The words below it, at equal distances from the left to the right end."""
    marks: Sequence[Mark] = ()
    words: Sequence[str] = ()
    """The words of its scale from the top down, if it is not one of numbers from 0 on."""

    @property
    def scale(self) -> Sequence[str]:
        """The values at its upper edge, in the middle and at its lower edge."""
        return self.words or [
            f"{value:,.0f}" if value.is_integer() else f"{value:g}" for value in (self.top, self.top / 2, 0.0)
        ]


def lines(
    drawn: Sequence[Curve],
    label: str,
    length: int,
    ticks: Sequence[str] = (),
    places: Mapping[int, Bar] = MappingProxyType({}),
    marks: Sequence[Mark] = (),
) -> Chart:
    """A chart of lines with one value per unit, the last at the right end; ``label`` says it in words.

    ``places``: what the pointer is at, by the unit at which it begins.
    """
    top = edge(max((value or 0.0 for line in drawn for value in line.values), default=0.0))
    shapes = (
        Markup('<polyline class="line {}" vector-effect="non-scaling-stroke" points="{}"/>').format(
            line.kind, _points(line.values, top, length)
        )
        for line in drawn
    )
    said = _places(places.items(), marks)
    return Chart(_svg(length - 1, label, [*map(_line, marks), *shapes, *said]), top, ticks, marks)


def bars(drawn: Sequence[Bar], label: str, ticks: Sequence[str] = (), marks: Sequence[Mark] = ()) -> Chart:
    """A chart of bars, one per unit, with lines for ``marks``."""
    top = edge(max((sum(value for _, value in bar.parts) for bar in drawn), default=0.0))
    shapes = [*map(_line, marks), *_places(enumerate(drawn), marks, top)]
    return Chart(_svg(len(drawn) or 1, label, shapes), top, ticks, marks)


def steps(
    drawn: Sequence[Curve],
    places: Sequence[Bar],
    label: str,
    ticks: Sequence[str] = (),
    marks: Sequence[Mark] = (),
    top: float | None = None,
) -> Chart:
    """A chart of levels, one per unit; none for a value of None. ``places``: what the pointer is at.

    ``top`` is the value at its upper edge; None: a round number.
    """
    if top is None:
        top = edge(max((value for line in drawn for value in line.values if value is not None), default=0.0))
    form = Markup('<path class="line {}" vector-effect="non-scaling-stroke" d="{}"/>')
    shapes = [form.format(line.kind, _levels(line.values, top)) for line in drawn]
    said = _places(enumerate(places), marks)
    return Chart(_svg(len(places), label, [*map(_line, marks), *shapes, *said]), top, ticks, marks)


def heat(
    columns: Sequence[Sequence[int]],
    places: Sequence[Bar],
    label: str,
    words: Sequence[str],
    ticks: Sequence[str],
    marks: Sequence[Mark],
) -> Chart:
    """A grid with a column per unit, its numbers from the bottom up: the darker, the more."""
    highest = max((number for column in columns for number in column), default=0)
    height = _HEIGHT / max(1, len(columns[0]) if columns else 1)
    form = Markup('<rect class="heat" x="{}" y="{:.2f}" width="1" height="{:.2f}" fill-opacity="{:.2f}"/>')
    cells = (
        form.format(place, _HEIGHT - (row + 1) * height, height, _depth(number, highest))
        for place, column in enumerate(columns)
        for row, number in enumerate(column)
        if number > 0
    )
    svg = _svg(len(columns) or 1, label, [*cells, *map(_line, marks), *_places(enumerate(places), marks)])
    return Chart(svg, float(highest), ticks, marks, words)


def _depth(number: int, highest: int) -> float:
    """By the logarithm: one job of thousands is still seen."""
    return 0.15 + 0.85 * math.log1p(number) / math.log1p(highest)


def _levels(values: Sequence[float | None], top: float) -> str:
    """Neighbours are joined, so that a level of one unit is seen in a chart of very many."""
    drawn, before = "", None
    for place, value in enumerate(values):
        if value is not None:
            height = f"{_HEIGHT - value / top * _HEIGHT:.1f}"
            drawn += f"M{place} {height}h1" if before is None else f"V{height}h1"
        before = value
    return drawn


def _places(places: Iterable[tuple[int, Bar]], marks: Sequence[Mark], top: float = 1.0) -> Iterator[Markup]:
    """Bars at the units at which they begin, with the words of the marks in them."""
    for place, bar in places:
        within = (mark for mark in marks if place <= mark.place < place + bar.width)
        said = "".join(f"; deploy {visible(cut(mark.label, 60))}" for mark in within)
        yield _bar(place, replace(bar, says=bar.says + said), top)


def small(values: Sequence[float], label: str) -> Markup:
    """Bars without a scale, for a cell of a table; the highest one fills the height."""
    top = max(values, default=0) or 1
    shapes = (_bar(place, Bar([("failed", value)]), top) for place, value in enumerate(values))
    return Markup('<span class="small">{}</span>').format(_svg(len(values) or 1, label, shapes))


def _line(mark: Mark) -> Markup:
    form = (
        '<line class="deploy" x1="{0:.2f}" y1="0" x2="{0:.2f}" y2="{1}" vector-effect="non-scaling-stroke"/>'
    )
    return Markup(form).format(mark.place, _HEIGHT)


def spark(values: Sequence[int], label: str) -> Markup:
    """A row of small bars in a cell of a table; ``label`` says what they are."""
    top = max(values, default=0) or 1
    shapes = (
        Markup('<rect x="{}" y="{:.1f}" width="0.8" height="{:.1f}"/>').format(
            place, _HEIGHT - value / top * _HEIGHT, value / top * _HEIGHT
        )
        for place, value in enumerate(values)
        if value
    )
    words = f"{label}: {', '.join(f'{value:,}' for value in values)}"
    return Markup('<span class="spark">{}</span>').format(_svg(max(1, len(values)), words, shapes))


def edge(highest: float) -> float:
    """A round number that is not below the highest value: 1, 2 or 5 with zeros."""
    size = 1.0
    while size < highest:
        for factor in (2, 5, 10):
            if highest <= size * factor:
                return size * factor
        size *= 10
    return size


def some_of(values: Sequence[T], most: int = 5) -> list[T]:
    """The first, the last and evenly chosen ones between them."""
    if len(values) <= most:
        return [*values]
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]


def clocks(times: Sequence[float]) -> list[Markup]:
    """The words below a chart of these times (epoch seconds), the last of which is about now."""
    return [clock(at, times[-1]) for at in some_of(times)]


def _points(values: Sequence[float | None], top: float, length: int) -> str:
    first = length - len(values)
    return " ".join(
        f"{first + place},{_HEIGHT - value / top * _HEIGHT:.1f}"
        for place, value in enumerate(values)
        if value is not None
    )


def _bar(place: int, bar: Bar, top: float) -> Markup:
    shapes, bottom = Markup(), float(_HEIGHT)
    for kind, value in bar.parts:
        height = value / top * _HEIGHT
        bottom -= height
        if height:
            shapes += Markup('<rect class="{}" x="{:.2f}" y="{:.2f}" width="0.8" height="{:.2f}"/>').format(
                kind, place + 0.1, bottom, height
            )
    if bar.says:
        # The whole height answers to the pointer, also above a low bar.
        form = '<rect class="place" x="{}" y="0" width="{}" height="{}" data-says="{}"{}/>'
        at = Markup(' data-at="{}"').format(bar.at) if bar.at else ""
        shapes += Markup(form).format(place, bar.width, _HEIGHT, bar.says, at)
    return shapes


def _svg(width: int, label: str, shapes: Iterable[Markup]) -> Markup:
    return Markup(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(width, _HEIGHT, label, Markup().join(shapes))
