"""Actions on pages, with the token of a form of the dashboard."""

from __future__ import annotations

from tests.web.visitor import Visitor


def fields(visitor: Visitor, **more: str) -> dict[str, str]:
    """The fields of a form, with the token of this visitor."""
    token = next(form.hidden["csrf"] for form in visitor.get("cron").forms if "csrf" in form.hidden)
    return {"csrf": token, **more}


def act(visitor: Visitor, path: str, **more: str) -> str:
    """The text of the page after an action."""
    answer = visitor.ask(path, fields(visitor, **more))
    assert answer.status == 200, answer.text[:2000]
    return answer.text
