"""Document: a page as a parser sees it, its links and forms, and all that is wrong with its HTML."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

from tests.web.hostile import MARK

_VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# Of these, the last three can hold no element, so neither <bdi>.
_ISOLATING = {"bdi", "textarea", "title", "option"}
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_UNLABELLED = {"hidden", "submit", "button", "reset"}


@dataclass
class Form:
    """A form: where it goes, its named fields with their first values, and its buttons."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    """The names of the fields into which people write."""


@dataclass
class _Element:
    tag: str
    about: dict[str, str]
    has_name: bool = False
    """True if it contains a text, or is named by an attribute: for links, buttons and titles."""


class Document(HTMLParser):
    """A page; ``problems`` is empty for a good one."""

    def __init__(self, url: str, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.url = url
        self.problems: list[str] = []
        self.links: list[str] = []
        self.forms: list[Form] = []
        self.tags: list[str] = []
        self._open: list[_Element] = []
        self._ids: list[str] = []
        self._refers: list[str] = []
        self._controls: list[dict[str, str]] = []
        self._words: list[str] = []
        if not html.lower().startswith("<!doctype html>"):
            self._report("no doctype")
        if found := _CONTROLS.search(html):
            self._report(
                f"the control character {found[0]!r} near {html[found.start() - 60 : found.start()]!r}"
            )
        self.feed(html)
        self.close()
        self._finish()

    @property
    def text(self) -> str:
        """The text that it shows, white space reduced."""
        return " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        if MARK in tag or any(MARK in name for name in about) or len(attrs) != len(about):
            self._report(f"hostile text became markup: <{tag} {attrs}>"[:300])
        self._check_scripts(tag, about)
        if "id" in about:
            self._ids.append(about["id"])
        for name in ("aria-labelledby", "aria-describedby", "aria-controls"):
            self._refers += about.get(name, "").split()
        self._follow(tag, about)
        self._note_field(tag, about)
        if tag not in _VOID:
            self._open.append(
                _Element(tag, about, bool(about.get("aria-label") or about.get("aria-labelledby")))
            )

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1].tag != tag:
            self._report(f"</{tag}> within {[element.tag for element in self._open[-4:]]}")
        if tag in [element.tag for element in self._open]:
            while (element := self._open.pop()).tag != tag:
                pass
            if tag in ("a", "button", "th", "h1", "h2", "title", "summary", "label") and not element.has_name:
                self._report(f"an empty <{tag}>: {element.about}")

    def handle_data(self, data: str) -> None:
        inside = [element.tag for element in self._open]
        if "script" in inside or "style" in inside:
            if data.strip():
                self._report(f"a script or style within the page: {data[:80]!r}")
            return
        self._words.append(data)
        if data.strip():
            for element in self._open:
                element.has_name = True
        if _BIDI.search(data) and not self._is_isolated():
            self._report(f"bidi marks outside <bdi>: {data[:80]!r} in {inside[-3:]}")

    def _is_isolated(self) -> bool:
        return any(el.tag in _ISOLATING or el.about.get("dir") == "auto" for el in self._open)

    def _check_scripts(self, tag: str, about: dict[str, str]) -> None:
        if tag == "style" or "style" in about:
            self._report(f"a style within the page: <{tag}>")
        if any(name.startswith("on") for name in about):
            self._report(f"a script in an attribute of <{tag}>")
        if tag == "script" and "src" not in about:
            self._report("a script within the page")

    def _follow(self, tag: str, about: dict[str, str]) -> None:
        for name in ("href", "src", "action", "formaction"):
            if name not in about:
                continue
            goal, here = urlsplit(urljoin(self.url, about[name])), urlsplit(self.url)
            if goal[:2] != here[:2]:
                self._report(f"a link outside: {about[name][:100]!r}")
            elif tag in ("a", "link", "script", "img") and not about[name].startswith("#"):
                self.links.append(goal._replace(fragment="").geturl())

    def _note_field(self, tag: str, about: dict[str, str]) -> None:
        if tag == "form":
            action = urljoin(self.url, about.get("action") or self.url)
            self.forms.append(Form(action, about.get("method", "get").lower()))
        if tag in ("input", "select", "textarea"):
            kind = about.get("type", "text")
            if kind not in _UNLABELLED:
                is_inside = any(element.tag == "label" for element in self._open)
                self._controls.append(about | {"inside a label": "yes" if is_inside else ""})
            if self.forms and "name" in about and kind not in ("checkbox", "radio"):
                self.forms[-1].fields[about["name"]] = about.get("value", "")
                if tag != "select" and kind in ("text", "search", "number"):
                    self.forms[-1].texts.append(about["name"])
        elif tag == "option" and self.forms and "selected" in about:
            select = next((el.about for el in reversed(self._open) if el.tag == "select"), {})
            if name := select.get("name"):
                self.forms[-1].fields[name] = about.get("value", "")
        elif tag == "label" and "for" in about:
            self._refers.append(about["for"])

    def _finish(self) -> None:
        if self._open:
            self._report(f"not closed: {[element.tag for element in self._open]}")
        for name in {name for name in self._ids if self._ids.count(name) > 1}:
            self._report(f"the id {name!r} is not unique")
        for name in set(self._refers) - set(self._ids):
            self._report(f"there is no id {name!r}")
        for tag, number in (("title", 1), ("h1", 1), ("main", 1)):
            if self.tags.count(tag) != number:
                self._report(f"{self.tags.count(tag)} of <{tag}>")
        for about in self._controls:
            named = about["inside a label"] or about.get("aria-label") or about.get("aria-labelledby")
            if not named and about.get("id") not in self._refers:
                self._report(f"a field without a label: {about}")

    def _report(self, problem: str) -> None:
        self.problems.append(problem)
