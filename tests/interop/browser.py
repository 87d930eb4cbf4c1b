"""A browser for Sidekiq's Web UI: pages, their text and forms, and the session in a cookie."""

from __future__ import annotations

import http.cookiejar
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin, urlsplit


@dataclass
class Form:
    """A form with its hidden fields, which hold the CSRF token, its check boxes and its buttons."""

    action: str
    method: str = "post"
    hidden: dict[str, str] = field(default_factory=dict)
    boxes: list[tuple[str, str]] = field(default_factory=list)
    buttons: dict[str, str] = field(default_factory=dict)


class Page:
    """What a page shows: its ``text``, white space reduced, its links and its forms. Parsed when asked."""

    def __init__(self, url: str, html: str) -> None:
        self.url = url
        self.html = html

    @cached_property
    def _parsed(self) -> _Parser:
        return _Parser(self.url, self.html)

    @property
    def forms(self) -> list[Form]:
        return self._parsed.forms

    @property
    def links(self) -> list[str]:
        return self._parsed.links

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    @cached_property
    def text(self) -> str:
        return " ".join(" ".join(self._parsed.words).split())

    @property
    def posts(self) -> list[Form]:
        """The forms that change something."""
        return [form for form in self.forms if form.method == "post"]

    def form(self, action: str) -> Form:
        """The form that posts to this path."""
        [found] = [form for form in self.posts if urlsplit(form.action).path == action]
        return found


class _Parser(HTMLParser):
    def __init__(self, url: str, html: str) -> None:
        super().__init__()
        self._url = url
        self.forms: list[Form] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = {name: value or "" for name, value in attrs}
        if tag == "form":
            action = urljoin(self._url, about.get("action", ""))
            self.forms.append(Form(action, about.get("method", "get").lower()))
        elif tag == "a":
            self.links.append(urljoin(self._url, about.get("href", "")))
        elif tag in ("input", "button") and self.forms and "name" in about:
            self._field(about)

    def _field(self, about: dict[str, str]) -> None:
        form, name, value = self.forms[-1], about["name"], about.get("value", "")
        if "formaction" in about:  # a button with its own address
            action = urljoin(self._url, about["formaction"])
            self.forms.insert(-1, Form(action, hidden=form.hidden, buttons={name: value}))
        elif about.get("type") == "submit":
            form.buttons[name] = value
        elif about.get("type") == "checkbox":
            form.boxes.append((name, value))
        else:
            form.hidden[name] = value

    def handle_data(self, data: str) -> None:
        self.words.append(data)


class Browser:
    """Keeps the session, follows redirections, and fails on any answer but 200."""

    def __init__(self, root: str) -> None:
        self.root = root
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)

    def get(self, path: str) -> Page:
        return self._open(urllib.request.Request(urljoin(self.root, path)))

    def press(self, form: Form, button: str | None = None, *, tick: str = "") -> Page:
        """Press a button, or the only one; ``tick`` first ticks the boxes that have it in their value."""
        [name] = [button] if button else form.buttons
        fields = [*form.hidden.items(), (name, form.buttons[name])]
        if tick:
            ticked = [box for box in form.boxes if tick in box[1]]
            assert ticked, f"no box for {tick}"
            fields += ticked
        # What browsers say of a form of the same site, and Sidekiq 8 asks for instead of a token.
        headers = {"Sec-Fetch-Site": "same-origin"}
        return self._open(urllib.request.Request(form.action, urlencode(fields).encode(), headers))

    def refused(self, path: str, fields: dict[str, str]) -> int:
        """The status of a POST that must not succeed."""
        try:
            with self._opener.open(urljoin(self.root, path), urlencode(fields).encode(), timeout=60):
                return 200
        except urllib.error.HTTPError as error:
            return error.code

    def _open(self, request: urllib.request.Request) -> Page:
        try:
            with self._opener.open(request, timeout=60) as answer:
                return Page(answer.geturl(), answer.read().decode())
        except urllib.error.HTTPError as error:
            path = urlsplit(request.full_url).path
            raise AssertionError(f"{error.code} for {path}: {error.read().decode()[:2000]}") from None
