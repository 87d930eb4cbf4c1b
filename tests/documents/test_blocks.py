"""Every code block of every document runs, or is read by the program that it is for."""

from __future__ import annotations

import ast
import configparser
import gc
import json
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import click
import pytest
import yaml

from pyworkers.cli import main
from pyworkers.config.loading import load
from pyworkers.testing import fake
from tests.documents.blocks import all_blocks, blocks, own_test
from tests.helpers.support import ROOT

PAGES = sorted({block.page for block in blocks("python") if not own_test(block.page)})
# `text` is what a person reads. Programs in the others are run by the test of their page.
LANGUAGES = {"python", "toml", "sh", "console", "json", "yaml", "ini", "text"}
ELSEWHERE = {"go", "ruby", "js", "sql", "lua", "dockerfile", "promql", "diff"}
NOT_RUN = 6
# Words that begin a command of a document, other than pyworkers.
PROGRAMS = {
    "cat", "cd", "celery", "chmod", "cp", "curl", "docker", "echo", "eval", "export", "flask", "git",
    "journalctl", "kill", "kubectl", "ls", "manage.py", "mkdir", "mkdocs", "mv", "openssl", "pip", "promtool",
    "pytest", "python", "python3", "redis-cli", "rm", "source", "systemctl", "systemd-analyze", "tee",
    "touch", "uvicorn",
}  # fmt: skip
CHECK = str(Path(sys.executable).with_name("check-jsonschema"))
_MODULE = re.compile(r"# (\w+)\.py\n")
# A variable of the environment for one command, or a change of user.
_PREFIX = re.compile(r"\w+=.*|sudo|exec")


@pytest.fixture
def program(
    tmp_path: Path, one_redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """The names of the programs of a page, which run in an empty folder, with their own namespace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYWORKERS_REDIS__URL", one_redis_url)
    monkeypatch.setenv("PYWORKERS_REDIS__NAMESPACE", namespace)
    names: dict[str, Any] = {"__name__": "page"}
    with fake():
        yield names
    # A program of a page ends with its process, and need not close its connections before.
    names.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    for name in {match[1] for block in blocks("python") if (match := _MODULE.match(block.code))}:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, program: dict[str, Any]) -> None:
    """Each block after the others; the tests in it are called."""
    for block in blocks("python", page):
        made = compile(block.code, str(block), "exec")
        if not block.not_run:
            known = dict(program)
            _run(made, program, _MODULE.match(block.code))
            for name, value in program.items():
                if name.startswith("test_") and known.get(name) is not value:
                    value()


def _run(made: CodeType, program: dict[str, Any], header: re.Match[str] | None) -> None:
    """Run a block among the names of the page; one that begins with ``# tasks.py`` is that module, too."""
    if header is None:
        exec(made, program)
        return
    module = sys.modules[header[1]] = ModuleType(header[1])
    exec(made, vars(module))
    program |= {name: value for name, value in vars(module).items() if not name.startswith("__")}


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_module_of_jobs_enqueues_nothing_when_it_is_imported(block: Any) -> None:
    """A server imports it: at each start and each reload, such a call would enqueue again."""
    module = ast.parse(block.code)
    if any(
        isinstance(step, ast.FunctionDef | ast.AsyncFunctionDef) and step.decorator_list
        for step in module.body
    ):
        calls = [ast.unparse(step) for step in module.body if _runs_at_import(step)]
        assert [call for call in calls if re.search(r"\ba?enqueue\w*\(", call)] == [], block


def _runs_at_import(step: ast.stmt) -> bool:
    """Not a definition, nor ``if __name__ == "__main__":``."""
    if isinstance(step, ast.If):
        return ast.unparse(step.test) != "__name__ == '__main__'"
    return not isinstance(step, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_toml_is_a_configuration(block: Any, tmp_path: Path) -> None:
    path = tmp_path / "workers.toml"
    path.write_text(block.code)
    load(path, env={})


@pytest.mark.parametrize("block", [*blocks("sh"), *blocks("console")], ids=str)
def test_commands_exist_with_these_options(block: Any) -> None:
    for line in _command_lines(block.code):
        words = list(dropwhile(_PREFIX.fullmatch, shlex.split(line, comments=True)))
        if not words:
            continue
        name = Path(words[0]).name
        if name == "pyworkers":
            _parse(main, _until_redirection(words[1:]))
        elif name == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        else:
            assert name in PROGRAMS, f"{block}: unknown command {name}"


def _command_lines(code: str) -> Iterator[str]:
    """The commands of a block; in one with prompts, output has none. ``|`` and ``&&`` divide a line."""
    lines = code.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    for line in lines:
        yield from re.split(r" (?:\||&&) (?=\w)", line)


def _until_redirection(words: list[str]) -> list[str]:
    for number, word in enumerate(words):
        if re.match(r"[<>&|]", word):
            return words[:number]
    return words


def _parse(group: click.Command, words: list[str]) -> None:
    """Parse the words as the command would, and run nothing."""
    context = group.make_context("pyworkers", list(words), resilient_parsing=False)
    while isinstance(context.command, click.Group) and context._protected_args + context.args:
        rest = [*context._protected_args, *context.args]
        _, command, left = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(command.name, left, parent=context)


def test_data_is_what_it_says() -> None:
    for block in blocks("json"):
        json.loads(block.code)
    for block in blocks("yaml"):
        assert list(yaml.safe_load_all(block.code)), block
    for block in blocks("ini"):
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.read_string(block.code)
        assert parser.sections(), block


def test_a_workflow_has_the_schema(tmp_path: Path) -> None:
    workflows = [block for block in blocks("yaml") if block.code.startswith("# .github/workflows/")]
    assert workflows
    for block in workflows:
        path = tmp_path / "workflow.yml"
        path.write_text(block.code)
        command = [CHECK, "--builtin-schema", "vendor.github-workflows", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}: {done.stdout}"
        for job in yaml.safe_load(block.code)["jobs"].values():
            for step in job["steps"]:
                for line in step.get("run", "").splitlines():
                    assert shlex.split(line)[0] in PROGRAMS, f"{block}: {line}"


def test_every_block_says_what_it_is() -> None:
    unknown = [
        f"{block} {block.language}"
        for block in all_blocks()
        if block.language not in LANGUAGES
        and not (block.language in ELSEWHERE and (block.not_run or own_test(block.page)))
    ]
    assert unknown == [], "write ```python, ```sh, ```toml, ```json … or ```text"


def test_few_blocks_are_not_run() -> None:
    left = [str(block) for block in all_blocks() if block.not_run]
    assert len(left) <= NOT_RUN, left
