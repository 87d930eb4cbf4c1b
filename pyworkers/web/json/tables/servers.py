"""The servers, their running jobs, and who did what."""

from __future__ import annotations

from typing import Any

from pyworkers.api import processes, running
from pyworkers.api.audit import AUDIT_ACTION, read_audit
from pyworkers.api.parameters import Parameter, paging
from pyworkers.api.processes import PROCESS, read_process, read_processes, request_numbers
from pyworkers.api.running import WORKS, read_works
from pyworkers.api.schemas import page_of
from pyworkers.web.json.resources import Ask, Resource, found


async def _servers(ask: Ask) -> dict[str, Any]:
    await ask.site.read(request_numbers(ask.keys))
    return (await ask.site.read(read_processes(ask.keys, ask.given["first"], ask.given["count"]))).as_dict()


async def _server(ask: Ask) -> dict[str, Any]:
    view = await ask.site.read(read_process(ask.keys, ask.names["identity"]))
    return PROCESS.as_dict(found(view, "server"))


async def _running(ask: Ask) -> dict[str, Any]:
    await ask.site.read(request_numbers(ask.keys))
    given = ask.given
    page = await ask.site.read(read_works(ask.keys, given["first"], given["count"], given["server"] or ""))
    return page.as_dict()


async def _audit(ask: Ask) -> dict[str, Any]:
    return (await ask.site.read(read_audit(ask.keys, ask.given["first"], ask.given["count"]))).as_dict()


RESOURCES = (
    Resource(
        "/running",
        "The running jobs, the longest first.",
        _running,
        WORKS,
        [*paging(), Parameter("server", "Only the jobs of the server with this identity.")],
        running.ACTIONS,
    ),
    Resource(
        "/servers",
        "The servers, by identity.",
        _servers,
        page_of("Servers", "servers", PROCESS.schema),
        paging(),
        processes.ACTIONS_ON_ALL,
    ),
    Resource(
        "/servers/{identity}",
        "One server.",
        _server,
        PROCESS.schema,
        actions=processes.ACTIONS,
    ),
    Resource(
        "/audit",
        "The last thousand actions, the latest first.",
        _audit,
        page_of("Audit", "actions", AUDIT_ACTION.schema),
        paging(),
    ),
)
