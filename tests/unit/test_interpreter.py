"""How this process was started, for those that it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pyworkers.programs.interpreter import Interpreter, folder, interpreter_flags, is_of_python


def test_a_link_to_the_folder_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "release-1").mkdir()
    link = tmp_path / "current"
    link.symlink_to("release-1")
    monkeypatch.chdir(link)
    monkeypatch.setenv("PWD", str(link))
    assert folder() == link


@pytest.mark.parametrize("named", ["", ".", "missing", os.sep])
def test_another_name_of_the_folder_counts_only_if_it_leads_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", named)
    assert folder() == tmp_path


@pytest.mark.parametrize("word", ["{}/.venv/bin/pyworkers", "--config={}/workers.toml"])
def test_a_path_of_the_command_line_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """As in a unit of systemd, which sets no PWD."""
    (tmp_path / "release-1").mkdir()
    link = tmp_path / "current"
    link.symlink_to("release-1")
    monkeypatch.chdir(link)
    monkeypatch.delenv("PWD", raising=False)
    monkeypatch.setattr(sys, "argv", ["pyworkers", "run", word.format(link)])
    assert folder() == link


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("python -m pyworkers run", ""),
        ("python -O -m pyworkers run -O", "-O"),
        ("python -OWerror -X utf8 -Xdev app.pyz run", "-O -W error -X utf8 -X dev"),
        ("python --check-hash-based-pycs always -um tasks", "--check-hash-based-pycs always -u"),
        ("python -i -x -I script.py -B", "-I"),
        ("python", ""),
        ("python -c print()", ""),
        ("python - -O", ""),
    ],
)
def test_the_options_of_the_interpreter(line: str, flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", line.split())
    assert interpreter_flags() == tuple(flags.split())


def test_the_path_is_that_of_the_program_by_the_name_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r1" / "lib").mkdir(parents=True)
    link = tmp_path / "current"
    link.symlink_to("r1")
    monkeypatch.chdir(link)
    monkeypatch.setenv("PWD", str(link))
    real = tmp_path / "r1"
    packages = Path(pytest.__file__).parents[1]
    given = [
        str(real),
        str(real / "lib"),
        "",
        str(packages),
        str(tmp_path / "app.pyz"),
        str(Path(os.__file__).parent),
    ]
    monkeypatch.setattr(sys, "path", given)
    assert is_of_python(packages)
    assert Interpreter.of_this_process().path == (str(link / "lib"), str(tmp_path / "app.pyz"))
