"""The system checks of a Django project, and the errors of its configuration."""

from __future__ import annotations

from tests.integrations.django.conftest import Project, manage_each


def test_a_project_without_a_redis_fails_the_check(project: Project) -> None:
    site = project(settings="\ndel PYWORKERS\n")
    assert "(pyworkers.E001) PYWORKERS names no Redis" in site.manage("check", code=1)
    shown = site.manage("pyworkers", "run", code=2)
    assert "pyworkers.E001" in shown
    assert "Traceback" not in shown
    site = project(settings="\ndel PYWORKERS\n", REDIS_URL="redis://127.0.0.1:1/0")
    assert "no issues" in site.manage("check")


WRONG = {
    "PYWORKERS['redsi'] = {}": "unknown key redsi\n\tHINT: did you mean redis?",
    "PYWORKERS['dashbord_url'] = ''": "unknown key dashbord_url\n\tHINT: did you mean dashboard_url?",
    "PYWORKERS['redis']['ulr'] = ''": "unknown key redis.ulr\n\tHINT: did you mean redis.url?",
    "PYWORKERS['server'] = {'lease': 'x'}": "server.lease: must be a number, not a string",
    "PYWORKERS['server'] = 3": "server: must be a table",
    "PYWORKERS['on_commit'] = 'yes'": "on_commit: must be True or False, not 'yes'",
    "PYWORKERS = 3": "must be a dict with the keys of the configuration file",
    "PYWORKERS = {3: 4}": "must be a dict with the keys of the configuration file",
}
"""A change of the settings, and what the check says about it."""


def test_a_wrong_setting_fails_the_check(project: Project) -> None:
    found = manage_each(project(), [(change, "check") for change in WRONG])
    for (change, expected), (code, shown) in zip(WRONG.items(), found, strict=True):
        assert code == 1, change
        assert "(pyworkers.E002) PYWORKERS in project.settings: " in shown, change
        assert expected in shown, change


def test_an_unknown_database_fails_the_check(project: Project) -> None:
    shown = project(pyworkers={"database": "replica"}).manage("check", code=1)
    assert "(pyworkers.E003) PYWORKERS: database is 'replica', which is not in DATABASES." in shown
    assert "HINT: known here: default" in shown


def test_a_command_says_what_is_wrong(project: Project) -> None:
    site = project(pyworkers={"quues": {}})
    shown = site.manage("pyworkers", "stats", code=2)
    assert shown == "Error: PYWORKERS in project.settings: unknown key quues\ndid you mean queues?\n"
