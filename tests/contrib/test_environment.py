"""The environment that `make` installs into: made once, by one Python, and again when it is incomplete."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.support import ROOT

SCRIPT = ROOT / "contrib" / "environment.sh"
BASE = f"Python {sys.version_info[0]}.{sys.version_info[1]} in {sys.base_prefix}"


class Environment:
    """A folder for an environment, and the Pythons that a user may name."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.path = folder / ".venv"
        self.pythons = folder / "pythons"
        self.pythons.mkdir()
        # The real Python, but for pip, which takes seconds.
        self.real = self._python(
            "real", 'case "$2" in venv) shift 2; set -- -m venv --without-pip "$@";; esac'
        )

    def _python(self, name: str, before: str) -> Path:
        path = self.pythons / name
        path.write_text(f'#!/bin/sh\n{before}\nexec {sys.executable} "$@"\n')
        path.chmod(0o755)
        return path

    def python(self, version: str) -> Path:
        """Another one, which calls itself so."""
        old = "exit 1" if version.startswith("3.9") else "exit 0"
        says = f'case "$2" in *base_prefix*) echo "Python {version} in /opt";; *version_info*) {old};;'
        return self._python(version, f"{says} *) exit 3;; esac; exit")

    def make(self, python: Path | None = None, named: str = "default") -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [SCRIPT, ".venv", python or self.real, named]
        return subprocess.run(command, cwd=self.home, capture_output=True, text=True, timeout=60)

    def made(self) -> None:
        """Make it, and put a mark into it that is gone when it has been made again."""
        done = self.make()
        assert (done.returncode, done.stderr) == (0, f"Making .venv with {BASE}\n")
        (self.path / "mark").touch()

    @property
    def kept(self) -> bool:
        return (self.path / "mark").exists()


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def test_it_is_made_once(environment: Environment) -> None:
    environment.made()
    again = environment.make(named="chosen")
    assert (again.returncode, again.stderr, environment.kept) == (0, "", True)


def test_another_python_that_was_not_named_does_not_touch_it(environment: Environment) -> None:
    environment.made()
    other = environment.python("3.12")
    done = environment.make(other)
    assert (done.returncode, environment.kept) == (0, True)
    assert f".venv was made by {BASE}; {other} is Python 3.12 in /opt. Continuing with {BASE}" in done.stderr


def test_another_python_that_the_user_named_is_refused(environment: Environment) -> None:
    environment.made()
    done = environment.make(environment.python("3.12"), "chosen")
    assert (done.returncode, environment.kept) == (1, True)
    assert "Remove it with 'make clean', or use a second one: VENV=.venv-2" in done.stderr


def test_without_any_python_the_environment_still_serves(environment: Environment) -> None:
    environment.made()
    assert environment.make(Path("no-such-python")).returncode == 0
    assert environment.kept


@pytest.mark.parametrize("missing", [".made", "bin/python"])
def test_an_incomplete_environment_is_made_again(environment: Environment, missing: str) -> None:
    environment.made()
    (environment.path / missing).unlink()
    environment.made()


def test_what_another_python_installed_is_not_kept(environment: Environment) -> None:
    environment.made()
    (environment.path / ".made").write_text(f"Python 3.10 in /opt, for {environment.path}\n")
    assert environment.make().returncode == 0
    assert not environment.kept


def test_a_copy_of_a_clone_gets_an_environment_of_its_own(environment: Environment, tmp_path: Path) -> None:
    environment.made()
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(environment.path, copy / ".venv", symlinks=True)
    environment.home = copy
    assert environment.make().returncode == 0
    assert not (copy / ".venv" / "mark").exists()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("3.9", "is Python 3.9 in /opt, but pyworkers needs 3.11 or newer: name one with PYTHON="),
        (None, "does not run: name a Python, 3.11 or newer, with PYTHON="),
    ],
)
def test_a_python_that_cannot_serve_is_named(
    environment: Environment, version: str | None, message: str
) -> None:
    python = environment.python(version) if version else Path("no-such-python")
    done = environment.make(python)
    assert done.returncode == 1
    assert message in done.stderr
    assert not environment.path.exists()


def test_a_folder_of_something_else_is_left_alone(environment: Environment) -> None:
    environment.path.mkdir()
    (environment.path / "thesis.txt").write_text("years")
    done = environment.make()
    assert (done.returncode, (environment.path / "thesis.txt").read_text()) == (1, "years")
    assert ".venv is not an environment, and not empty" in done.stderr


@pytest.mark.parametrize(
    ("words", "called"), [([], "python3 default"), (["PYTHON=python3.99"], "python3.99 chosen")]
)
def test_make_says_whether_the_python_was_named(
    monkeypatch: pytest.MonkeyPatch, words: list[str], called: str
) -> None:
    # `make test PYTHON=…` may be what runs this.
    for name in ("PYTHON", "MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)
    command = ["make", "--dry-run", "VENV=.venv-none", "test", *words]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"contrib/environment.sh .venv-none {called}" in printed
