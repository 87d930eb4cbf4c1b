"""Installs the peers, each into its own environment in a cache folder outside the repository.

The folder is ``$PYWORKERS_BENCH_CACHE``, by default ``~/.cache/pyworkers-bench``. What is installed stays
until it is asked to be installed again; nothing is looked up that the peer does not need.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("PYWORKERS_BENCH_CACHE", Path.home() / ".cache" / "pyworkers-bench"))


class Environment(Protocol):
    """Where a peer's programs are."""

    def install(self) -> None:
        """Make it ready, if it is not. Raises RuntimeError with what the installer said."""

    def command(self, name: str) -> str:
        """The path of one of its programs."""

    def program(self, app: str) -> tuple[str, ...]:
        """The command that enqueues for this application (peer.py)."""

    def versions(self) -> str:
        """What was installed, for the table."""


@dataclass(frozen=True)
class Python:
    """A virtual environment with these requirements; ``this`` repository is installed if they say so."""

    name: str
    requirements: tuple[str, ...]
    shown: tuple[str, ...]
    """The distributions whose versions go into the table."""

    @property
    def folder(self) -> Path:
        return CACHE / self.name

    def install(self) -> None:
        stamp = self.folder / ".installed"
        requirements = [name.replace("THIS", str(ROOT)) for name in self.requirements]
        wanted = "\n".join(requirements)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        _run([sys.executable, "-m", "venv", "--clear", str(self.folder)])
        _run([self.command("python"), "-m", "pip", "install", "--quiet", *requirements])
        stamp.write_text(wanted)

    def command(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def program(self, app: str) -> tuple[str, ...]:
        return (self.command("python"), "-m", "contrib.bench.programs.produce", app)

    def versions(self) -> str:
        code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
        found = _run([self.command("python"), "-c", code, *self.shown]).split()
        return ", ".join(f"{name} {number}" for name, number in zip(self.shown, found, strict=True))


@dataclass(frozen=True)
class Go:
    """A program built from the Go module ``programs/FOLDER``, of its folder ``package``."""

    name: str
    module: str
    """Whose version goes into the table."""
    folder: str = "go"
    package: str = ""

    @property
    def _source(self) -> Path:
        return Path(__file__).parent / "programs" / self.folder

    def install(self) -> None:
        if shutil.which("go") is None:
            raise RuntimeError("no go; install Go 1.22 or newer")
        # The Go build cache makes this cheap when nothing has changed.
        _run(["go", "build", "-o", self.command(self.name), f"./{self.package}"], self._source)

    def command(self, name: str) -> str:
        return str(CACHE / "go" / name)

    def program(self, app: str) -> tuple[str, ...]:
        return (self.command(app),)

    def versions(self) -> str:
        version = _run(["go", "list", "-m", "-f", "{{.Version}}", self.module], self._source)
        return f"{self.name} {version}, {_run(['go', 'env', 'GOVERSION'])}"


@dataclass(frozen=True)
class Debian:
    """Programs from Debian packages, which have to be there: installing them needs root."""

    package: str
    needed: str

    def install(self) -> None:
        if shutil.which(self.needed) is None:
            raise RuntimeError(f"no {self.needed}; apt-get install {self.package}")

    def command(self, name: str) -> str:
        return shutil.which(name) or name

    def program(self, app: str) -> tuple[str, ...]:
        return (self.command("ruby"), app)

    def versions(self) -> str:
        fields = "${Package} ${Version}"
        return _run(["dpkg-query", "-W", "-f", fields, self.package])


def _run(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} …: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout.strip()
