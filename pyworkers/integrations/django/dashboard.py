"""The dashboard at an address of a Django project: ``path("jobs/", dashboard())`` in its URLconf.

Runs in the web processes, under WSGI and ASGI. Needs the extra ``web``, imported at the first request.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, re_path, reverse
from django.utils.encoding import escape_uri_path, iri_to_uri
from django.utils.http import escape_leading_slashes
from django.views.decorators.csrf import csrf_exempt

from pyworkers.config.loading import load
from pyworkers.integrations.django.bridge import DashboardBridge, path_of
from pyworkers.integrations.django.configuration import read_settings

VIEW, OPERATE = "pyworkers.view_queue", "pyworkers.operate_queue"
_ROLE = "pyworkers.role"

Authorize = Callable[[HttpRequest], str | None]
Urls = tuple[list[Any], str, str]


def role_of(request: HttpRequest) -> str | None:
    """The role of a request, by the permissions of staff; superusers have all.

    Those with ``pyworkers.view_queue`` look at jobs and their arguments, those with ``operate_queue`` act.
    """
    user = getattr(request, "user", None)
    if user is None or not (user.is_active and user.is_staff):
        return None
    if user.has_perm(OPERATE):
        return "operate"
    return "read" if user.has_perm(VIEW) else None


def dashboard(authorize: Authorize = role_of) -> Urls:
    """The addresses of the dashboard, for ``path``.

    ``authorize`` gets the request and returns ``"read"``, ``"enqueue"``, ``"operate"``, or None for no
    access. Viewers who are not logged in are sent to the login of the project.
    """
    mounted = _Mounted()

    # The dashboard has its own tokens, which are also in its JSON.
    @csrf_exempt
    def view(request: HttpRequest, path: str) -> HttpResponseBase:
        role = authorize(request)
        whole = path_of(request)
        user = getattr(request, "user", None)
        if role is None:
            if user is None or user.is_authenticated:
                raise PermissionDenied
            # Imported here: a project may have users of another kind, or none.
            from django.contrib.auth.views import redirect_to_login

            query = iri_to_uri(request.META.get("QUERY_STRING", ""))
            asked = escape_leading_slashes(escape_uri_path(whole))
            return redirect_to_login(f"{asked}?{query}" if query else asked, _login())
        prefix = whole[: len(whole) - len(path)]
        name = user.get_username() if user is not None else ""
        return mounted.bridge.answer(request, prefix, {_ROLE: role, "state": {"user": name}})

    # A line break in an address is for the dashboard to refuse.
    return [re_path(r"^(?P<path>[\s\S]*)$", view, name="dashboard")], "pyworkers", "pyworkers"


def address() -> str:
    """The address of the dashboard of this project; empty if its URLconf has none."""
    try:
        return str(reverse("pyworkers:dashboard", args=[""]))
    except NoReverseMatch:
        return ""


class _Mounted:
    """The dashboard, made at the first request."""

    @cached_property
    def bridge(self) -> DashboardBridge:
        """The way to it."""
        from pyworkers.web import app

        config = load(read_settings, env=os.environ)
        return DashboardBridge(
            app(
                config.redis,
                mask=config.web.mask,
                thresholds=config.web.thresholds,
                authorize=lambda request: request.scope[_ROLE],
                others=config.other_redis,
            )
        )


def _login() -> str:
    """The login page: of the project, else of the admin."""
    try:
        return str(resolve_url(settings.LOGIN_URL if settings.is_overridden("LOGIN_URL") else "admin:login"))
    except NoReverseMatch:
        return str(resolve_url(settings.LOGIN_URL))
