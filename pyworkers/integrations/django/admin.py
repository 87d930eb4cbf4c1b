"""The page of the queues in Django's admin, for users with the permission ``pyworkers.view_queue``.

Imported by the admin alone. It reads Redis for each request, and changes nothing.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from pyworkers import PyworkersError
from pyworkers.api import Stats
from pyworkers.api.queuestats import QUEUE
from pyworkers.cli.output.listing import Form
from pyworkers.cli.targets import Located, located
from pyworkers.integrations.django import worker
from pyworkers.integrations.django.configuration import django_settings
from pyworkers.integrations.django.dashboard import address
from pyworkers.integrations.django.models import Queue

_COLUMNS = QUEUE.shown("name", "size", "latency_s", "in_progress", "state")


@admin.register(Queue)
class QueueAdmin(admin.ModelAdmin):
    """Shows the sizes of all queues, with a link to the dashboard."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """No: a queue is made by its first job."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """No: there are only numbers."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """No: the dashboard and the command line delete."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The page. A Redis that is unreachable is shown as an error."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": "Queues",
            "opts": self.opts,
            "dashboard_url": django_settings().dashboard_url or address(),
            **_numbers(),
        }
        return TemplateResponse(request, "pyworkers/queues.html", context)


def _numbers() -> dict[str, Any]:
    """The counts and the queues of all Redis servers, with their names if there are several."""
    stores = worker.stores()
    counts: list[tuple[str, Stats]] = []
    errors: list[tuple[str, str]] = []
    for name, redis in stores.by_name.items():
        label = name if stores.several else ""
        try:
            counts.append((label, Stats.fetch(redis)))
        except PyworkersError as error:
            errors.append((label, str(error)))
    columns = located(_COLUMNS)[0 if stores.several else 1 :]
    form = Form(max((stats.now for _, stats in counts), default=0.0))
    heads = [head.title.capitalize() for head in form.heads(columns)]
    rows = [form.row(columns, Located(name, queue)) for name, stats in counts for queue in stats.queues]
    return {"counts": counts, "errors": errors, "heads": heads, "rows": rows}
