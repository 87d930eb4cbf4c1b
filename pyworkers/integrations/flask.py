"""Flask: jobs run inside the context of the Flask application, so that ``current_app`` and extensions work.

Used in the web process and in worker processes.
"""

from __future__ import annotations

from flask import Flask

from pyworkers import CallNext, Message, Outcome, PyworkersError, Worker
from pyworkers.config.stores import Stores
from pyworkers.errors import ConfigError


class PyworkersExtension:
    """A Flask extension: ``jobs = PyworkersExtension(app)``, and ``@jobs.worker.job`` declares a job.

    With a factory: ``jobs = PyworkersExtension()`` in a module, and ``jobs.init_app(app)`` in the factory.
    ``app.config["PYWORKERS"]`` has the arguments of ``Worker``: ``{"url": …, "namespace": …, "config": …}``;
    without it, the environment counts. The server's ``app`` is ``"module:jobs.worker"``, where the
    module has also made the Flask application.
    """

    def __init__(self, app: Flask | None = None, worker: Worker | None = None) -> None:
        """``worker``: a Worker that is declared elsewhere, with its own configuration."""
        self._app: Flask | None = None
        self.worker = _FlaskWorker(self) if worker is None else worker
        """The Worker with which jobs are declared and enqueued."""
        self.worker.middleware(self._in_context)
        if app is not None:
            self.init_app(app)

    @property
    def app(self) -> Flask:
        """The Flask application. Raises PyworkersError before ``init_app``."""
        if self._app is None:
            raise PyworkersError(
                "the jobs do not belong to a Flask application yet",
                hint="call init_app in the module that the server imports, or name a module that does",
            )
        return self._app

    def init_app(self, app: Flask) -> None:
        """Run the jobs in the context of this application."""
        self._app = app
        app.extensions["pyworkers"] = self

    def _in_context(self, message: Message, call_next: CallNext) -> Outcome:
        with self.app.app_context():
            return call_next(message)


class _FlaskWorker(Worker):
    """A Worker that enqueues where the Flask application says."""

    def __init__(self, extension: PyworkersExtension) -> None:
        super().__init__()
        self._extension = extension

    def stores(self) -> Stores:
        """The Redis servers for enqueueing, and the one of each queue. Raises ConfigError."""
        given = self._extension.app.config.get("PYWORKERS", {})
        try:
            return self._registry.with_limited(Worker(**given).stores())
        except TypeError as error:
            raise ConfigError(f'app.config["PYWORKERS"]: {error}') from error
