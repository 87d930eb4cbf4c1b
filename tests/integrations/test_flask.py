"""The Flask extension, with a real application."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, current_app

from pyworkers import PyworkersError, Worker
from pyworkers.errors import ConfigError
from pyworkers.integrations.flask import PyworkersExtension
from pyworkers.testing import fake, inline


def application(**config: Any) -> Flask:
    app = Flask("shop")
    app.config.update(SHOP="corner", **config)
    return app


def test_jobs_run_inside_the_context_of_the_application() -> None:
    jobs = PyworkersExtension(application())
    seen: list[str] = []

    @jobs.worker.job
    def work(kind: str) -> None:
        seen.append(f"{kind} {current_app.config['SHOP']}")

    @jobs.worker.job
    async def work_async(kind: str) -> None:
        seen.append(f"{kind} {current_app.config['SHOP']}")

    with inline():
        work.enqueue("def")
        work_async.enqueue("async")
    assert seen == ["def corner", "async corner"]
    with pytest.raises(RuntimeError, match="outside of application context"):
        _ = current_app.config


def test_a_view_enqueues() -> None:
    app = application()
    jobs = PyworkersExtension(app)

    @jobs.worker.job
    def mail(user_id: int) -> None: ...

    @app.post("/<int:user_id>")
    def sign_up(user_id: int) -> str:
        return mail.enqueue(user_id)

    with fake() as queue:
        jid = app.test_client().post("/7").text
    assert [(job.jid, job.args) for job in queue.jobs] == [(jid, [7])]


def test_a_factory_gives_the_application_later() -> None:
    jobs = PyworkersExtension()

    @jobs.worker.job
    def work() -> str:
        return str(current_app.config["SHOP"])

    with inline(), pytest.raises(PyworkersError, match="do not belong to a Flask application"):
        work.enqueue()
    app = application()
    jobs.init_app(app)
    assert app.extensions["pyworkers"] is jobs
    with inline():
        work.enqueue()


def test_the_configuration_of_the_application_says_where_jobs_go() -> None:
    jobs = PyworkersExtension(
        application(PYWORKERS={"url": "redis://127.0.0.1:7999/3", "namespace": "shop:"})
    )
    config = jobs.worker.client.config
    assert (config.url, config.namespace) == ("redis://127.0.0.1:7999/3", "shop:")


def test_an_argument_that_a_worker_does_not_take_is_a_config_error() -> None:
    jobs = PyworkersExtension(application(PYWORKERS={"timeout": 5}))
    with pytest.raises(ConfigError, match=r'config\["PYWORKERS"\]: .*timeout'):
        jobs.worker.redis_config()


def test_a_worker_of_ones_own_keeps_its_configuration() -> None:
    worker = Worker("redis://127.0.0.1:7998/0")
    jobs = PyworkersExtension(application(PYWORKERS={"url": "redis://127.0.0.1:7999/3"}), worker)
    assert jobs.worker is worker
    assert jobs.worker.client.config.url == "redis://127.0.0.1:7998/0"
