"""``pyworkers completion``: the scripts that it prints complete words in the shells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.test_cli import python_m_pyworkers

# What bash does when the tab key is pressed behind these words.
TAB = """
set -e
eval "$(pyworkers completion bash)"
complete -p pyworkers >&2
COMP_WORDS=({words}) COMP_CWORD={place} COMPREPLY=()
_pyworkers_completion pyworkers
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["pyworkers", "comp"], ["completion"]),
        (["pyworkers", "re"], ["retries", "resume", "reload", "result"]),
        (["pyworkers", "cron", "tri"], ["trigger"]),
        (["pyworkers", "run", "--log-l"], ["--log-level"]),
        (["pyworkers", "run", "--log-level", "w"], ["warning"]),
        (["pyworkers", "--vers"], ["--version"]),
    ],
)
def test_bash_completes_commands_options_and_values(words: list[str], completed: list[str]) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = TAB.format(words=" ".join(words), place=len(words) - 1)
    done = subprocess.run(
        ["bash", "-c", script], env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.split()) == (0, completed), done.stderr


@pytest.mark.parametrize(
    ("shell", "text"), [("zsh", "compdef _pyworkers_completion pyworkers"), ("fish", "complete --no-files")]
)
def test_other_shells_have_scripts(shell: str, text: str) -> None:
    done = python_m_pyworkers("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert text in done.stdout


def test_completion_imports_no_command() -> None:
    code = (
        "import sys; from pyworkers.cli import main\n"
        "try: main(prog_name='pyworkers')\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    env = os.environ | {
        "_PYWORKERS_COMPLETE": "bash_complete",
        "COMP_WORDS": "pyworkers s",
        "COMP_CWORD": "1",
    }
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert "plain,stats" in done.stdout
    assert not {"redis", "structlog", "pyworkers.cli.stats"} & set(done.stderr.split())
