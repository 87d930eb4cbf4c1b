"""The programs of contrib/docs/django.md run as one project, and do what the page says."""

from __future__ import annotations

import re

import pytest

from pyworkers.handler import JobOptions
from pyworkers.protocol.options import JobOverrides
from tests.helpers.django_project import DjangoProject
from tests.helpers.support import ROOT
from tests.integrations.django.conftest import Project

TEXT = (ROOT / "contrib/docs/django.md").read_text()
PROGRAMS = re.findall(r"```python\n# (\S+)\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def site(project: Project) -> DjangoProject:
    """The programs of the page in a project, with what each project has."""
    found = project(REDIS_URL="")
    settings = found.folder / "project/settings.py"
    start, _, _ = settings.read_text().partition("PYWORKERS")
    base = start.replace('"pyworkers.integrations.django", ', "")
    found.write(
        "project/settings.py",
        f"{base}\nROOT_URLCONF = 'project.urls'\nBASE_DIR = __import__('pathlib').Path()\n",
    )
    found.write(
        "project/urls.py",
        "from django.urls import path\nfrom shop.views import create\nurlpatterns = [path('orders', create)]",
    )
    found.write(
        "shop/models.py",
        """
        from django.db import models
        class Order(models.Model):
            status = models.CharField(default="new")
        """,
    )
    found.write("shop/migrations/__init__.py", "")
    for name, code in PROGRAMS:
        path = found.folder / name
        before = path.read_text() if path.exists() else ""
        found.write(name, f"{before}\n{code}")
    found.manage("makemigrations", "shop")
    return found


def test_its_files_are_a_project_whose_tests_pass(site: DjangoProject) -> None:
    assert [name for name, _ in PROGRAMS] == [
        "project/settings.py", "shop/tasks.py", "project/settings.py", "shop/views.py", "shop/tests.py",
        "project/urls.py",
    ]  # fmt: skip
    assert "Ran 2 tests" in site.manage("test")
    assert 'namespace = "shop:"' in site.manage("pyworkers", "config", "show")


def test_each_program_of_the_page_is_one_of_them() -> None:
    assert TEXT.count("```python") == len(PROGRAMS)


def test_the_options_of_its_tables_exist() -> None:
    known = {**JobOptions.__annotations__, **JobOverrides.__annotations__}
    named = re.findall(r"(?:worker\.job|\.options)\((\w+)=", TEXT)
    assert len(named) >= 8
    assert set(named) - set(known) == set()
