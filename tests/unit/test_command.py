"""The command line with which a server starts its successor."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pyworkers.server.upgrade.successor import Command


def test_it_is_that_of_this_process() -> None:
    command = Command.of_this_process("127.0.0.1:7433")
    assert command.arguments == (sys.executable, *sys.orig_argv[1:])
    assert command.bind == "127.0.0.1:7433"


def test_a_link_to_the_folder_is_followed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "release-1").mkdir()
    link = tmp_path / "current"
    link.symlink_to("release-1")
    monkeypatch.chdir(link)
    monkeypatch.setenv("PWD", str(link))
    assert Command.of_this_process("").folder == link


@pytest.mark.parametrize("named", ["", ".", "missing", os.sep])
def test_another_name_of_the_folder_counts_only_if_it_leads_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", named)
    assert Command.of_this_process("").folder == tmp_path
