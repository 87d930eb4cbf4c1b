"""Servers of installed packages: from a wheel, editable, in a zipapp, and in a folder behind a link."""

from __future__ import annotations

import json
import os
import shutil
import signal
import site
import subprocess
import sys
import time
import venv
import zipapp
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import redis

from pyworkers.protocol.keys import Keys
from tests.helpers.processes import children
from tests.helpers.records import job
from tests.helpers.support import PATIENCE_S, ROOT, wait_for, whole_lines

_NEEDED = ("redis", "hiredis", "simplejson", "croniter", "structlog", "click", "dateutil", "six.py")
_EXTRAS = ("uvicorn", "starlette", "prometheus_client", "anyio", "idna", "h11", "typing_extensions.py")
PROGRAM = str(Path(sys.executable).with_name("pyworkers"))
# Each has the name of a module that pyworkers or Python imports, and is alongside tasks.py.
HIDDEN = ("email", "redis", "types", "random", "secrets", "calendar")
APP = """
import json, locale, os, signal, stat, sys, warnings
import email, redis, types, random, secrets, calendar
from pathlib import Path
from pyworkers import Worker

worker = Worker()
RELEASE = "r1"
PATH, ARGUMENTS = list(sys.path), list(sys.argv)
# Which of these are whose must not change.
OWN = [m.__name__ for m in (email, redis, types, random, secrets, calendar) if hasattr(m, "MINE")]
CHANCE = [name for name in ("importlib.metadata", "email.utils", "urllib.parse") if name in sys.modules]


def kinds():
    for name in os.listdir("/proc/self/fd"):
        try:
            found = os.fstat(int(name))
        except OSError:
            continue  # the descriptor of listdir
        device = os.readlink(f"/proc/self/fd/{name}").startswith("/dev") and found.st_rdev
        yield [device, stat.S_IFMT(found.st_mode), os.get_inheritable(int(name))]


@worker.job(queue="q", concurrency=1)
def look(number):
    status = Path("/proc/self/status").read_text()
    masks = [line.split() for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
    # Signals 32 and 33 are the C library's: its first thread takes them from whoever ignored them.
    signals = [[name, hex(int(mask, 16) & ~(0b11 << 31))] for name, mask in masks]
    facts = {
        "path": [*map(os.path.realpath, PATH)],
        "arguments": ARGUMENTS,
        "own": OWN,
        "chance": CHANCE,
        "folder": os.readlink("/proc/self/cwd"),
        "prefix": os.path.realpath(sys.prefix),
        "flags": [*map(str, sys.flags)],
        "options": [sys.warnoptions, sorted(sys._xoptions.items())],
        "filters": [str(one) for one in warnings.filters],
        "environment": dict(os.environ),
        "descriptors": sorted(kinds()),
        "signals": signals,
        "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding()],
        "streams": [(one.encoding, one.errors, one.line_buffering) for one in (sys.stdout, sys.stderr)],
        "umask": os.umask(0o22),
        "limit": json.dumps(__import__("resource").getrlimit(__import__("resource").RLIMIT_NOFILE)),
    }
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(json.dumps([number, os.getppid(), RELEASE, facts]) + "\\n")
"""


@dataclass
class Site:
    """A place where the package is installed, and an application with it."""

    command: list[str]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    next_release: Callable[[], None] = lambda: None
    options: list[str] = field(default_factory=list)


def application(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tasks.py").write_text(APP)
    for name in HIDDEN:
        (folder / f"{name}.py").write_text("MINE = True\n")
    return folder


def environment_in(folder: Path) -> Path:
    """An environment with the package, as a wheel installs it, and what it needs."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / "lib" / Path(os.__file__).parent.name / "site-packages"
    # With the compiled code, which an installer writes as well.
    shutil.copytree(ROOT / "pyworkers", packages / "pyworkers")
    for name in (*_NEEDED, *_EXTRAS):
        for found in (place for entry in site.getsitepackages() if (place := Path(entry) / name).exists()):
            (packages / name).symlink_to(found)
    script = folder / "bin/pyworkers"
    script.write_text(f"#!{folder}/bin/python\nfrom pyworkers.__main__ import run\nrun()\n")
    script.chmod(0o755)
    return folder / "bin"


def wheel(folder: Path) -> Site:
    return Site([str(environment_in(folder / "env") / "pyworkers")], application(folder / "app"))


def editable(folder: Path) -> Site:
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-X", "utf8", "-OO", PROGRAM]
    return Site(command, application(folder / "app"))


def zipped(folder: Path) -> Site:
    tree = folder / "tree"
    shutil.copytree(ROOT / "pyworkers", tree / "pyworkers")
    for path in tree.rglob("*.py"):
        # Where an archive is searched for it: otherwise each start compiles all anew.
        with suppress(FileNotFoundError):
            Path(cache_from_source(path)).rename(path.with_suffix(".pyc"))
    zipapp.create_archive(tree, application(folder / "app") / "app.pyz", main="pyworkers.__main__:run")
    return Site([sys.executable, "app.pyz"], folder / "app")


def linked(folder: Path) -> Site:
    """The usual layout of releases, with the environment in the release; started without PWD."""
    application(folder / "r1")
    environment_in(folder / "r1" / "env")
    (folder / "current").symlink_to("r1")

    def next_release() -> None:
        shutil.copytree(folder / "r1", folder / "r2", symlinks=True)
        script = folder / "r2/env/bin/pyworkers"
        script.write_text(script.read_text().replace("r1", "r2"))
        (folder / "r2/tasks.py").write_text(APP.replace('"r1"', '"r2"'))
        (folder / "next").symlink_to("r2")
        (folder / "next").rename(folder / "current")

    return Site([str(folder / "current/env/bin/pyworkers")], folder / "current", {"PWD": "/"}, next_release)


def unnamed(folder: Path) -> Site:
    """A server that cannot know that it was started by a link; the configuration is in another folder."""
    place = linked(folder)
    other = application(folder / "other")
    (other / "tasks.py").write_text("raise AssertionError('the other folder')")
    (other / "workers.toml").write_text("[server]\nmax_jobs_per_worker = 1\n")
    command = [sys.executable, PROGRAM]
    return replace(place, command=command, options=["--config", "../other/workers.toml"])


class Server:
    """A running server of a site, and what its jobs see."""

    def __init__(self, place: Site, folder: Path, url: str, namespace: str) -> None:
        self.ledger, self.log = folder / "ledger", folder / "log"
        self.redis, self.keys = redis.Redis.from_url(url), Keys(namespace)
        self.count = 0
        options = ["--url", url, "--namespace", namespace, "--log-format", "json", "--app", "tasks:worker"]
        environment = os.environ | {"LEDGER": str(self.ledger)} | place.environment
        environment.pop("PYTHONPATH", None)
        environment.pop("VIRTUAL_ENV", None)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*place.command, "run", *options, *place.options],
                cwd=place.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def event(self, name: str, **fields: Any) -> dict[str, Any]:
        def seen() -> list[dict[str, Any]]:
            lines = [json.loads(line) for line in whole_lines(self.log) if line.startswith("{")]
            wanted = {"event": name, **fields}
            return [line for line in lines if wanted.items() <= line.items()]

        try:
            return wait_for(seen, PATIENCE_S)[-1]
        except AssertionError:
            raise AssertionError(f"no {name} {fields}; the log:\n{self.log.read_text()}") from None

    def look(self, fork_server: int) -> tuple[str, dict[str, Any]]:
        """The release and the facts that a job of this fork server sees; others run it only before."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.count += 1
            self.redis.lpush(self.keys.queue("q"), json.dumps(job(f"{self.count:024}", "look", self.count)))
            found = wait_for(self.seen, PATIENCE_S, message=f"job {self.count}:\n{self.log.read_text()}")
            if found[1] == fork_server:
                return found[2], found[3]
        raise AssertionError(f"no job in a worker of {fork_server}; the log:\n{self.log.read_text()}")

    def seen(self) -> Any:
        notes = [json.loads(line) for line in whole_lines(self.ledger)] if self.ledger.exists() else []
        return notes[-1] if notes and notes[-1][0] == self.count else None

    def fork_server(self) -> int:
        """The pid of the first fork server."""
        [found] = children(self.pid)
        return found


@contextmanager
def running(place: Site, folder: Path, url: str, namespace: str) -> Iterator[Server]:
    server = Server(place, folder, url, namespace)
    try:
        server.event("server.started", pid=server.pid)
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait()
        server.redis.close()
