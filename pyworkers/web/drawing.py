"""Drawing: charts as SVG, without text, scripts or styles of their own; the page around them has the words.

Pure. A chart is stretched to its place, so its units are those of its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

_HEIGHT = 100


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart; ``kind`` is its class in the style sheet."""

    kind: str
    values: Sequence[float]


Bar = Sequence[tuple[str, float]]
"""The parts of a bar from the bottom up: the class in the style sheet, and the value."""


def lines(drawn: Sequence[Curve], label: str, length: int) -> Markup:
    """A chart of lines with one value per unit, the last at the right end; ``label`` says it in words."""
    top = max((value for line in drawn for value in line.values), default=0.0) or 1.0
    shapes = (
        Markup('<polyline class="line {}" vector-effect="non-scaling-stroke" points="{}"/>').format(
            line.kind, _points(line.values, top, length)
        )
        for line in drawn
    )
    return _svg(length - 1, label, shapes)


def bars(drawn: Sequence[Bar], label: str) -> Markup:
    """A chart of bars, one per unit."""
    top = max((sum(value for _, value in bar) for bar in drawn), default=0.0) or 1.0
    return _svg(len(drawn) or 1, label, (_bar(place, bar, top) for place, bar in enumerate(drawn)))


def _points(values: Sequence[float], top: float, length: int) -> str:
    first = length - len(values)
    return " ".join(
        f"{first + place},{_HEIGHT - value / top * _HEIGHT:.1f}" for place, value in enumerate(values)
    )


def _bar(place: int, bar: Bar, top: float) -> Markup:
    shapes, bottom = Markup(), float(_HEIGHT)
    for kind, value in bar:
        height = value / top * _HEIGHT
        bottom -= height
        if height:
            shapes += Markup('<rect class="{}" x="{:.2f}" y="{:.2f}" width="0.8" height="{:.2f}"/>').format(
                kind, place + 0.1, bottom, height
            )
    return shapes


def _svg(width: int, label: str, shapes: Iterable[Markup]) -> Markup:
    return Markup(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(width, _HEIGHT, label, Markup().join(shapes))
