"""The dashboard in a Django project, under WSGI and ASGI."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from pyworkers import Client
from pyworkers.api import Queue
from tests.helpers.django_project import DjangoProject
from tests.helpers.support import PATIENCE_S, free_port, wait_for
from tests.integrations.django.conftest import Project
from tests.web.visitor import Visitor

URLS = """
from django.contrib import admin
from django.urls import path
from pyworkers.integrations.django.dashboard import dashboard
urlpatterns = [path("admin/", admin.site.urls), path("jobs/", dashboard())]
"""
STREAM = """
import asyncio
from django.http import HttpResponse
from django.urls import path
from pyworkers.integrations.django.bridge import DashboardBridge

gone = []

async def ticking(scope, receive, send):
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async def tick():
        number = 0
        while True:
            await send({"type": "http.response.body", "body": b"data: %d\\n\\n" % number, "more_body": True})
            number += 1
            await asyncio.sleep(0.01)
    task = asyncio.create_task(tick())
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()
    gone.append(scope["path"])

bridge = DashboardBridge(ticking)
urlpatterns = [
    path("stream", lambda request: bridge.answer(request, "/", {})),
    path("gone", lambda request: HttpResponse(str(len(gone)))),
]
"""
ASGI = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
from django.core.asgi import get_asgi_application
application = get_asgi_application()
"""
CUSTOMER = """
from django.contrib.auth.models import User
from django.test import Client
client = Client()
client.force_login(User.objects.get(username="customer"))
print(client.get("/jobs/queues").status_code)
"""
COMMANDS = {
    "wsgi": ["manage.py", "runserver", "--noreload"],
    "asgi": ["-m", "uvicorn", "project.asgi:application", "--log-level", "warning", "--port"],
}


@contextmanager
def serving(site: DjangoProject, kind: str, urls: str = URLS) -> Iterator[str]:
    """The address of the project, served by its own process."""
    site.write("project/urls.py", urls)
    site.write("project/asgi.py", ASGI)
    port = free_port()
    with (site.folder / "web.log").open("w") as log:
        process = site.start_python(log.fileno(), *COMMANDS[kind], str(port))
    try:
        wait_for(lambda: answers(port), message="the project listens")
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/nothing")
        return connection.getresponse().status == 404
    except OSError:
        return False
    finally:
        connection.close()


def logged_in(root: str, name: str) -> Visitor:
    """A visitor of the dashboard who has used the login of the admin."""
    visitor = Visitor(f"{root}jobs/")
    answer = visitor.ask("queues")
    assert urlsplit(answer.page.url).path == "/admin/login/", (answer.status, answer.text[:3000])
    [form] = answer.page.forms
    fields = {**form.hidden, "username": name, "password": "secret"}
    visitor.ask(form.action, fields, Referer=answer.page.url)
    return visitor


@pytest.mark.parametrize("kind", sorted(COMMANDS))
def test_people_look_and_act_by_their_rights(
    admin_project: Project, kind: str, one_redis_url: str, namespace: str
) -> None:
    with Client(one_redis_url, namespace=namespace) as client:
        client.enqueue("mail", "Send", [1])
    queue = Queue("mail", one_redis_url, namespace=namespace)
    with serving(admin_project(), kind) as root:
        for name, role in (("root", "operate"), ("operator", "operate"), ("staff", "read")):
            page = logged_in(root, name).ask("queues").page
            assert f"{name} ({role})" in page.text
            assert "/jobs/queues" in page.html
            assert any(form.buttons for form in page.forms) == (role == "operate")
        assert logged_in(root, "clerk").ask("queues").status == 403
        visitor = logged_in(root, "root")
        [form] = [form for form in visitor.get("queues").forms if form.buttons.get("action") == "pause"]
        assert "mail is paused." in visitor.press(form).text
        assert queue.paused
        assert visitor.ask("queues", {"action": "resume", "name": "mail"}).status == 403
        assert queue.paused
        [style] = [line for line in visitor.get("queues").html.splitlines() if "stylesheet" in line]
        assert visitor.ask(urljoin(root, style.split('"')[3])).status == 200


@pytest.mark.parametrize("kind", sorted(COMMANDS))
def test_an_event_stream(admin_project: Project, kind: str) -> None:
    """Under ASGI it goes on; under WSGI it ends after an event, and the browser asks again."""
    with serving(admin_project(), kind, STREAM) as root:
        connection = http.client.HTTPConnection(urlsplit(root).netloc, timeout=PATIENCE_S)
        connection.request("GET", "/stream")
        answer = connection.getresponse()
        assert answer.headers["content-type"] == "text/event-stream"
        if kind == "wsgi":
            assert answer.read() == b"retry: 2000\n\ndata: 0\n\n"
        else:
            assert [answer.readline() for _ in range(5)] == [
                b"data: 0\n",
                b"\n",
                b"data: 1\n",
                b"\n",
                b"data: 2\n",
            ]
        connection.close()
        # The application sees that the client has left.
        wait_for(lambda: Visitor(root).ask("gone").text == "1")


def test_a_middleware_that_compresses_lets_the_stream_pass(admin_project: Project) -> None:
    urls = URLS.replace("dashboard())", 'dashboard(lambda request: "read"))')
    gzip = 'MIDDLEWARE.insert(0, "django.middleware.gzip.GZipMiddleware")\n'
    with serving(admin_project(gzip), "asgi", urls) as root:
        connection = http.client.HTTPConnection(urlsplit(root).netloc, timeout=PATIENCE_S)
        connection.request("GET", "/jobs/events", headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["content-encoding"]) == (200, "identity")
        assert answer.readline() == b"retry: 2000\n"
        wait_for(lambda: answer.readline().startswith(b"data: "), message="an event comes")
        connection.close()


def test_a_user_without_rights_is_refused(admin_project: Project) -> None:
    site = admin_project()
    with serving(site, "wsgi"):
        assert site.run(CUSTOMER) == 403


@pytest.mark.parametrize("kind", sorted(COMMANDS))
def test_a_function_of_the_project_says_the_role_also_below_a_prefix(
    admin_project: Project, kind: str
) -> None:
    """A proxy has stripped the prefix: the addresses carry it all the same."""
    role = '"read" if "queues" in request.path else None'
    urls = URLS.replace("dashboard())", f"dashboard(lambda request: {role}))")
    with serving(admin_project('FORCE_SCRIPT_NAME = "/site"\n'), kind, urls) as root:
        visitor = Visitor(f"{root}jobs/")
        assert 'href="/site/jobs/queues"' in visitor.get("queues").html
        login = visitor.ask("dead?rank=2", follow=False)
        assert login.headers["Location"] == "/site/admin/login/?next=/site/jobs/dead%3Frank%3D2"
        assert visitor.ask("queues", {"action": "pause"}).status == 403


def test_the_page_in_the_admin_links_it(admin_project: Project) -> None:
    with serving(admin_project(), "wsgi") as root:
        visitor = logged_in(root, "root")
        page: Any = visitor.ask(f"{root}admin/pyworkers/queue/").page
        assert '<a href="/jobs/">Dashboard</a>' in page.html
