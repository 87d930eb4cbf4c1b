"""DjangoWorker: the Worker of a Django project.

Made at the import of the package, in every process of the project. The server loads Django with it, and the
``tasks.py`` of every app; a program that enqueues imports only the jobs that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import django
from django.apps import AppConfig, apps
from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from pyworkers import AsyncClient, Client, Worker
from pyworkers.integrations.django.commits import ProjectClients
from pyworkers.integrations.django.configuration import read_settings
from pyworkers.integrations.django.connections import Connections
from pyworkers.job import Clients
from pyworkers.middleware import DualLink

if TYPE_CHECKING:
    from pyworkers.ipc.control import Manifest


class DjangoWorker(Worker):
    """A Worker with the configuration ``settings.PYWORKERS``.

    Without a ``name``, the class of a job is its function behind the label of its app: ``shop.notify``.
    """

    def __init__(self) -> None:
        super().__init__(config=read_settings, name_prefix=app_prefix)
        self._connections = Connections()
        self._clients = ProjectClients(self, self._connections.any, None)
        self._committing = ProjectClients(self, self._connections.any, on_commit=True)
        self._at_once = ProjectClients(self, self._connections.any, on_commit=False)
        # The first link, so that the others can use the database.
        self.links.append(DualLink(self._connections.around, self._connections.around_async, both=True))
        self._when_loaded: list[Callable[[Worker], object]] = []

    def enter(self, mode: str) -> None:
        """As ``Worker.enter``: from here on, connections are closed around each job."""
        self._connections.enter(mode)

    def when_loaded(self, function: Callable[[Worker], object]) -> None:
        """Call the function when the jobs of all apps are imported, before the server reads them."""
        self._when_loaded.append(function)

    def manifest(self) -> Manifest:
        """As ``Worker.manifest``, with the jobs in the ``tasks.py`` of all apps; sets Django up."""
        django.setup()
        import_tasks()
        for function in self._when_loaded:
            function(self)
        manifest = super().manifest()
        self._connections.close_before_forks()
        return manifest

    @property
    def client(self) -> Client:
        """As ``Worker.client``; its jobs wait for the commit of the transaction around them."""
        return self._clients.client

    @property
    def async_client(self) -> AsyncClient:
        """As ``Worker.async_client``; its jobs wait for the commit of the transaction around them."""
        return self._clients.async_client

    def clients_for(self, *, on_commit: bool) -> Clients:
        """The clients of ``options(on_commit=…)``, which counts above ``PYWORKERS["on_commit"]``."""
        return self._committing if on_commit else self._at_once


def import_tasks() -> None:
    """Import the ``tasks.py`` of all apps."""
    autodiscover_modules("tasks")


def app_prefix(function: Callable[..., Any]) -> str:
    """The label of the app that has this function, with a dot; empty for a function outside of all apps."""
    module = f"{function.__module__}."
    around = [config for config in _app_configs(module) if module.startswith(f"{config.name}.")]
    return f"{max(around, key=lambda config: len(config.name)).label}." if around else ""


def _app_configs(module: str) -> Iterator[Any]:
    if apps.apps_ready:
        yield from apps.get_app_configs()
        return
    # Imported while Django loads its apps, e.g. by the package of an app: the registry is not filled.
    for entry in settings.INSTALLED_APPS:
        if entry.split(".")[0] == module.split(".")[0]:
            with suppress(Exception):  # Its module may be the one that is being imported.
                yield AppConfig.create(entry)
