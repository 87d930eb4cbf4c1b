"""A visitor of the dashboard without a browser: pages, their text and forms, and the cookies."""

from __future__ import annotations

import http.cookiejar
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urljoin

from tests.interop.browser import Form, Page

TIMEOUT_S = 60


@dataclass
class Answer:
    """An answer of any status."""

    status: int
    headers: Mapping[str, str]
    page: Page

    @property
    def text(self) -> str:
        """The text that a person reads."""
        return self.page.text


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class Visitor:
    """Keeps cookies and follows redirections; ``root`` is the address of the overview."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.cookies = http.cookiejar.CookieJar()
        self._handlers = (
            urllib.request.HTTPCookieProcessor(self.cookies),
            urllib.request.ProxyHandler({}),
        )

    def ask(
        self, path: str, fields: Mapping[str, str] | None = None, *, follow: bool = True, **headers: str
    ) -> Answer:
        """The answer to a GET, or to a POST of ``fields``."""
        data = None if fields is None else urlencode(fields).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(urljoin(self.root, path.lstrip("/")), data, named)
        handlers = self._handlers if follow else (*self._handlers, _NoRedirection)
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as answer:
                page = Page(answer.geturl(), answer.read().decode())
                return Answer(answer.status, dict(answer.headers), page)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), Page(request.full_url, error.read().decode()))

    def get(self, path: str = "") -> Page:
        """A page that must exist."""
        answer = self.ask(path)
        assert answer.status == 200, f"{answer.status} for {path}: {answer.text[:2000]}"
        return answer.page

    def press(self, form: Form, button: str = "action", **fields: str) -> Page:
        """Press a button of a form; the page after it."""
        answer = self.ask(form.action, {**form.hidden, button: form.buttons[button], **fields})
        assert answer.status == 200, f"{answer.status} for {form.action}: {answer.text[:2000]}"
        return answer.page
