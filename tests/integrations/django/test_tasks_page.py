"""The programs of contrib/docs/django-tasks.md run as one project, and do what the page says."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.helpers.django_project import DjangoProject
from tests.helpers.support import PATIENCE_S, ROOT
from tests.integrations.django.conftest import Project

TEXT = (ROOT / "contrib/docs/django-tasks.md").read_text()
PROGRAMS = dict(re.findall(r"```python\n# (.*?)\n(.*?)```", TEXT, re.DOTALL))
SETTINGS = """
ROOT_URLCONF = "project.urls"
ALLOWED_HOSTS = ["*"]
redis = PYWORKERS["redis"]
"""
URLS = """
from django.urls import path
from shop import views
urlpatterns = [path("upload", views.upload), path("<str:result_id>", views.show)]
"""


@pytest.fixture
def site(project: Project) -> DjangoProject:
    found = project(settings=SETTINGS + PROGRAMS["settings.py"] + "PYWORKERS['redis'] = redis\n")
    for name, code in PROGRAMS.items():
        if name.startswith("shop/"):
            found.write(name, framework(code))
    found.write("project/urls.py", URLS)
    return found


def framework(code: str) -> str:
    there = importlib.util.find_spec("django.tasks") is not None
    return code if there else code.replace("from django.tasks import", "from django_tasks import")


def test_a_view_enqueues_a_task_and_another_one_shows_its_result(site: DjangoProject) -> None:
    site.start()
    found = site.run(
        f"""
        import time
        from django.test import Client
        client = Client()
        jid = client.post("/upload").json()["id"]
        deadline = time.monotonic() + {PATIENCE_S - 5}
        while (found := client.get(f"/{{jid}}").json())["status"] != "SUCCESSFUL":
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        print(json.dumps(found))
        """
    )
    assert found == {"status": "SUCCESSFUL", "value": "cat.jpg.100.png"}
    [command] = re.findall(r"`python manage.py (pyworkers enqueue .*?)`", TEXT, re.DOTALL)
    words = re.findall(r"'(.*?)'|(\S+)", command)
    jid = site.manage(*(quoted or word for quoted, word in words)).split()[-1]
    done = site.wait_for_event("job.done", jid=jid)
    assert done["job_class"] == "shop.tasks.thumbnail"


def test_the_test_of_the_page_passes(site: DjangoProject) -> None:
    assert "\nOK\n" in site.manage("test", "shop.tests")


def test_job_options_are_those_of_the_page(site: DjangoProject) -> None:
    options = site.run(
        """
        from pyworkers.integrations.django import worker
        from pyworkers.testing import fake
        from shop import more
        with fake() as queue:
            more.fetch.enqueue("http://x")
        handler = worker.lookup("default", "shop.more.fetch")
        print(json.dumps([queue.jobs[0].data["retry"], handler.timeout]))
        """
    )
    assert options == [5, 30]


def test_the_priority_chooses_the_queue(project: Project) -> None:
    text = PROGRAMS["settings.py"] + PROGRAMS["more settings"]
    site = project(settings=SETTINGS + text + "PYWORKERS['redis'] = redis\n")
    site.write("shop/tasks.py", framework(PROGRAMS["shop/tasks.py"]))
    found = site.run(
        """
        from shop.tasks import thumbnail
        from pyworkers.testing import fake
        def queue_of(**options):
            try:
                with fake() as queue:
                    thumbnail.using(**options).enqueue("x")
                return queue.jobs[0].queue
            except Exception as error:
                return str(error)
        print(json.dumps([
            queue_of(), queue_of(priority=49), queue_of(priority=50), queue_of(priority=-50),
            queue_of(queue_name="mail"), queue_of(queue_name="mail", priority=1),
        ]))
        """
    )
    refused = "the queue 'mail' does not take tasks with the priority 1"
    assert found == ["default", "default", "high", "low", "mail", refused]
    served = site.run(
        """
        from pyworkers.integrations.django import worker
        print(json.dumps({name: group["queues"] for name, group in worker.manifest()["groups"].items()}))
        """
    )
    assert served == {"django-tasks": ["high", "default", "low"], "mail": ["mail"]}
    site.start()
    assert site.stop() == 0
