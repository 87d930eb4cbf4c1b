"""Graphing: the graph of a batch as SVG, with links and without scripts, and the same as a nested list.

Pure. The steps of a chain are below each other, with arrows; the members of a group are side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from pyworkers.api.batches import BatchNode, JobNode
from pyworkers.protocol.flow.plans import BatchStatus
from pyworkers.protocol.portions import portions
from pyworkers.web.rendering import linkable
from pyworkers.web.showing import cut, duration, number, visible

_WIDTH, _HEIGHT, _COUNT_HEIGHT = 190, 46, 30
_GAP, _PADDING, _HEAD = 18, 12, 44
_ABREAST = 3
_CHARACTER = 6.5
"""About the width of a character of a state."""
# As many of the font have room in the width of a job.
_MOST_CHARACTERS = 24
_TONES = {
    "done": "good", "succeeded": "good", "failed": "warn", "failing": "warn", "dead": "bad", "lost": "bad",
    "cancelled": "warn", "running": "now",
}  # fmt: skip
_WORDS = {"failed": "waits for a retry"}
_PLURALS = {"failed": "wait for a retry"}
_GONE = "bad"
_QUIET = ("waiting", "open", "skipped")
Addressed = Callable[[str, str], str]
"""The address of the page of a thing, by the place of such pages and its name."""


@dataclass(frozen=True, slots=True)
class _Box:
    """A part of the picture; ``shapes`` are drawn from its upper left corner."""

    width: float
    height: float
    shapes: Markup


def picture(graph: BatchNode, now: float, addressed: Addressed) -> Markup:
    """The graph as SVG."""
    box = _batch(graph, now, addressed)
    form = '<svg viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="group" aria-label="{2}">{3}</svg>'
    return Markup(form).format(
        int(box.width), int(box.height), f"Graph of the {_words_of(graph.status)}", box.shapes
    )


def listed(graph: BatchNode, now: float, addressed: Addressed) -> Markup:
    """The same in words: an item of a list, with the lists of the batches inside it."""
    items = [
        listed(member, now, addressed)
        if isinstance(member, BatchNode)
        else Markup("<li>{}: {}</li>").format(
            _linked("jobs", member.jid, visible(member.job_class), addressed), _state_of_job(member, now)
        )
        for member in graph.members
    ]
    items += [
        Markup("<li>{}</li>").format(_words_of_others(graph, state, many)) for state, many in graph.others
    ]
    items += [Markup("<li>{}</li>").format(words) for words in _callbacks(graph)]
    name = _linked("batches", graph.status.id, _words_of(graph.status), addressed)
    inside = Markup("<ul>{}</ul>").format(Markup().join(items)) if items else ""
    return Markup("<li>{}: {}{}</li>").format(name, _progress(graph.status, now), inside)


def _batch(node: BatchNode, now: float, addressed: Addressed) -> _Box:
    """A frame with a title, the members and the callbacks."""
    chained = node.status.kind == "chain"
    boxes = [
        _batch(member, now, addressed) if isinstance(member, BatchNode) else _job(member, now, addressed)
        for member in node.members
    ]
    counts = [_note(_words_of_others(node, state, many), state) for state, many in node.others]
    rows = [[box] for box in boxes] if chained else [list(row) for row in portions(boxes, _ABREAST)]
    content = _stacked([_abreast(row) for row in rows], arrows=chained)
    parts = [content, *([_abreast(counts)] if counts else []), *map(_note, _callbacks(node))]
    inside = _stacked([part for part in parts if part.height])
    progress = _progress(node.status, now)
    width = max(inside.width, _WIDTH, len(progress) * _CHARACTER) + 2 * _PADDING
    title = _text("name", 19, cut(visible(_words_of(node.status)), int(width / 7.5)))
    head = _linked("batches", node.status.id, title, addressed)
    shapes = _rect("frame", node.status.state, width, _HEAD + inside.height + _PADDING) + head
    shapes += _text(f"state {_tone(node.status.state)}", 36, progress)
    return _Box(width, _HEAD + inside.height + _PADDING, shapes + _moved(_PADDING, _HEAD, inside.shapes))


def _job(node: JobNode, now: float, addressed: Addressed) -> _Box:
    name = visible(node.job_class)
    short = name if len(name) <= _MOST_CHARACTERS else f"…{name[1 - _MOST_CHARACTERS :]}"
    title = _linked("jobs", node.jid, _text("name", 19, short), addressed)
    shapes = _rect("node", node.state, _WIDTH, _HEIGHT) + title
    return _Box(_WIDTH, _HEIGHT, shapes + _text(f"state {_tone(node.state)}", 36, _state_of_job(node, now)))


def _note(words: str, state: str = "waiting") -> _Box:
    """A line of words in a box with a dashed edge."""
    shapes = _rect("node more", state, _WIDTH, _COUNT_HEIGHT)
    return _Box(_WIDTH, _COUNT_HEIGHT, shapes + _text(f"state {_tone(state)}", 19, cut(words, 26)))


def _rect(kind: str, state: str, width: float, height: float) -> Markup:
    form = '<rect class="{} {}" width="{}" height="{}" rx="6"/>'
    return Markup(form).format(kind, _tone(state), width, height)


def _text(kind: str, y: int, words: str) -> Markup:
    return Markup('<text class="{}" x="10" y="{}">{}</text>').format(kind, y, words)


def _abreast(boxes: Sequence[_Box]) -> _Box:
    shapes, right = Markup(), 0.0
    for box in boxes:
        shapes += _moved(right, 0, box.shapes)
        right += box.width + _GAP
    return _Box(right - _GAP, max(box.height for box in boxes), shapes)


def _stacked(boxes: Sequence[_Box], *, arrows: bool = False) -> _Box:
    shapes, bottom = Markup(), 0.0
    for place, box in enumerate(boxes):
        if place:
            if arrows:
                shapes += _arrow(_WIDTH / 2, bottom)
            bottom += _GAP
        shapes += _moved(0, bottom, box.shapes)
        bottom += box.height
    return _Box(max((box.width for box in boxes), default=0.0), bottom, shapes)


def _arrow(x: float, y: float) -> Markup:
    form = '<path class="arrow" d="M{0} {1}V{2}m-4 -5l4 5l4 -5"/>'
    return Markup(form).format(x, y + 1, y + _GAP - 1)


def _moved(x: float, y: float, shapes: Markup) -> Markup:
    return Markup('<g transform="translate({} {})">{}</g>').format(x, y, shapes)


def _linked(place: str, name: str, text: str, addressed: Addressed) -> Markup:
    if not linkable(name):
        return escape(text)
    return Markup('<a href="{}">{}</a>').format(addressed(place, name), text)


def _words_of(status: BatchStatus) -> str:
    described = f" {visible(cut(status.description, 60))}" if status.description else ""
    return f"{visible(cut(status.kind, 20))}{described or ' ' + visible(status.id[:8])}"


def _progress(status: BatchStatus, now: float) -> str:
    """The state of a batch, how many are done, and the time that it took or has taken."""
    end = status.cancel_at or status.success_at
    took = duration(max(0.0, (end or now) - status.created_at)) if status.created_at else ""
    time = f", {'in' if end else 'for'} {took}" if took else ""
    return f"{status.state}, {number(status.done)} of {number(status.total)}{time}"


def _state_of_job(node: JobNode, now: float) -> str:
    words = _WORDS.get(node.state, node.state)
    if node.started_at is None or node.state == "waiting":
        return visible(cut(words, 26))
    end = now if node.state == "running" else node.finished_at
    return visible(cut(words, 30)) + (f", {duration(max(0.0, end - node.started_at))}" if end else "")


def _words_of_others(node: BatchNode, state: str, many: int) -> str:
    words = (_WORDS if many == 1 else _PLURALS).get(state, state)
    return f"{'and ' if node.members else ''}{number(many)} {words}"


def _callbacks(node: BatchNode) -> list[str]:
    return [
        f"{visible(callback.event)}: {visible(cut(callback.job_class, 40)) or '?'}"
        + (", enqueued" if callback.fired_at is not None else "")
        for callback in node.callbacks
    ]


def _tone(state: str) -> str:
    return _TONES.get(state, "" if state in _QUIET else _GONE)
