"""The page of the queues in the admin."""

from __future__ import annotations

from typing import Any

from tests.helpers.django_project import DjangoProject
from tests.integrations.django.conftest import ADMIN, Project

UNREACHABLE = """
PYWORKERS["redis"]["url"] = "redis://127.0.0.1:1/0"
"""
VISITS = """
from django.contrib.auth.models import Permission, User
from django.test import Client
from pyworkers.integrations.django import worker
from pyworkers import RedisUnavailableError
from contextlib import suppress
with suppress(RedisUnavailableError):
    worker.enqueue("mail", "Send", [1])
    worker.enqueue("<b>", "Send", [1])
pages = []
for number, granted in enumerate((["view_queue"], [])):
    user = User.objects.create_user(f"u{number}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=granted))
    client = Client()
    client.force_login(user)
    page = client.get("/admin/pyworkers/queue/")
    pages.append([page.status_code, page.content.decode()])
print(json.dumps(pages))
"""


def visits(site: DjangoProject) -> Any:
    """What a user with the permission sees, and one without."""
    site.write(
        "project/urls.py",
        """
        from django.contrib import admin
        from django.urls import path
        urlpatterns = [path("admin/", admin.site.urls)]
        """,
    )
    return site.run(VISITS)


def test_the_page_shows_the_queues_to_those_who_may_see_them(admin_project: Project) -> None:
    (code, page), (refused, _) = visits(
        admin_project(pyworkers={"dashboard_url": "https://jobs.example.org/"})
    )
    assert (code, refused) == (200, 403)
    assert '<th scope="row">mail</th><td>1</td>' in page
    assert '<th scope="row">&lt;b&gt;</th>' in page
    assert '<a href="https://jobs.example.org/">Dashboard</a>' in page


def test_an_unreachable_redis_is_shown(admin_project: Project) -> None:
    (code, page), _ = visits(admin_project(UNREACHABLE))
    assert code == 200
    assert 'class="errornote"' in page
    assert "Dashboard" not in page


def test_the_page_shows_the_queues_of_all_redis_servers(
    admin_project: Project, second_redis_url: str
) -> None:
    several = f"""
PYWORKERS["redis"]["archive"] = {{"url": {second_redis_url!r}, "namespace": "admin-several:"}}
PYWORKERS["redis"]["attic"] = {{"url": "redis://127.0.0.1:1/0"}}
PYWORKERS["queues"] = {{"mail": {{"redis": "archive"}}}}
"""
    (code, page), _ = visits(admin_project(several))
    assert code == 200
    assert '<th scope="row">archive</th><td>mail</td>' in page
    assert '<th scope="row">default</th><td>&lt;b&gt;</td>' in page
    assert "Redis attic is unreachable: " in page


def test_the_app_needs_no_migration_of_its_own(project: Project) -> None:
    site = project(settings=ADMIN)
    site.write("project/urls.py", "urlpatterns = []")
    assert "No changes detected" in site.manage("makemigrations", "--check", "--dry-run")
