"""A PostgreSQL server for tests, on a Unix socket in a temporary folder. It does not run as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.helpers.support import wait_for

# Debian keeps the programs out of PATH.
_FOLDERS = "/usr/lib/postgresql/*/bin"


def postgres_binary() -> str | None:
    """The newest ``postgres`` that is installed."""
    found = sorted(Path("/").glob(f"{_FOLDERS[1:]}/postgres"), key=lambda path: int(path.parts[-3]))
    return str(found[-1]) if found else shutil.which("postgres")


@contextlib.contextmanager
def running_postgres(binary: str) -> Iterator[str]:
    """Run a server; yield the folder of its socket. It ends with this process, also if that is killed."""
    user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    as_user: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid} if user else {}
    # Not in the folder of the test, which only its owner may enter; and a socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if user:
        os.chown(folder, user.pw_uid, user.pw_gid)
    try:
        data = folder / "data"
        initdb = [
            str(Path(binary).with_name("initdb")),
            "-D",
            str(data),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-N",
        ]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_user)
        command = [binary, "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
        # SIGINT is PostgreSQL's fast shutdown.
        bound = ["setpriv", "--pdeathsig", "INT", *_becoming(user), *map(str, command)]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(bound, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        try:
            wait_for(lambda: _answers(folder) or server.poll() is not None, message=f"{binary} answers")
            assert server.poll() is None, (folder / "log").read_text()
            yield str(folder)
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait()
    finally:
        shutil.rmtree(folder)


def _becoming(user: pwd.struct_passwd | None) -> list[str]:
    if user is None:
        return []
    return ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]


def connected(folder: str, database: str = "postgres") -> psycopg.Connection[Any]:
    """A connection with all rights, outside of transactions."""
    return psycopg.connect(host=folder, user="postgres", dbname=database, autocommit=True)


def _answers(folder: Path) -> bool:
    with contextlib.suppress(psycopg.OperationalError):
        connected(str(folder)).close()
        return True
    return False
