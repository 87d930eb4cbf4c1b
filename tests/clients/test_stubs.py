"""Stubs: programs in other languages call Python's functions with their types, and get what they return."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyworkers.cli import main
from tests.clients.conftest import CLIENTS
from tests.helpers.golang import LINKED
from tests.helpers.support import PATIENCE_S

GO = """package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"

	"example.com/app/jobs"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := pyworkers.FromEnv()
	check(err)
	charged, err := jobs.Charge(client, pyworkers.Options{}).Enqueue(ctx, jobs.ChargeArgs{Order: 7})
	check(err)
	receipt, err := charged.Result(ctx)
	check(err)
	echo, err := jobs.Echo(client, pyworkers.Options{}).Enqueue(ctx, jobs.EchoArgs{Rest: []any{1, "a"}})
	check(err)
	echoed, err := echo.Result(ctx)
	check(err)
	text, err := json.Marshal([]any{receipt["paid"], receipt["currency"], echoed})
	check(err)
	fmt.Println(string(text))
}
"""
TYPESCRIPT = """import { jobs } from "./jobs.js";
import type { Client } from "pyworkers";

export async function paid(client: Client): Promise<number> {
  await (await jobs(client).charge.enqueue(7, "EUR")).result();
  return (await jobs(client).add.enqueue(1, 2)).result();
}
"""


RUBY = r"""require "json"
require "redis"
require_relative "jobs"

Pyworkers.configure(Redis.new(url: ENV["REDIS_URL"]))
receipt = Pyworkers.result(Jobs.charge(7, track: 60))
echo = Pyworkers.result(Jobs.echo(1, "\#{a}", track: 60))
begin
  Jobs.charge
rescue ArgumentError => error
  puts JSON.generate([receipt, echo, error.message[0, 25]])
end
"""


ODD = '''"""Names and types that other languages do not have."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypedDict

from pyworkers import Worker

worker = Worker()
Keys = TypedDict("Keys", {"a-b": int, "-": int, "a,b": str, "😀": int, "": int})


class Mixed(Enum):
    RED = "red"
    TWO = 2


@dataclass
class Json:
    """A */ comment `of` #{two}\\0
    lines."""

    größe: float
    args: int
    Args: "list[Json] | None" = None


@worker.job(name="end")
def end_(class_: int, end: Mixed, function: Json, default: str = "😀", *await_: int) -> Keys: ...


@worker.job(name="日本")
def japan(日本: int, größe: str = "ü😀", Größe: int = 1) -> Json: ...


@worker.job(name="😀 #{x} \\"q\\" `b`\\u2028")
def quotes(callback: Callable[[int], int], default=float("inf"), static: int = 10**30): ...


for name in ("sendMail", "send_mail", "SendMailArgs", "__proto__", "object_id", "1st"):
    worker.job(name=name)(lambda _, __, _1, a_b=1, aB=2: None)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the application."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "application.py").write_text((CLIENTS / "application.py").read_text())
    (tmp_path / "odd.py").write_text(ODD)
    return tmp_path


def generate(language: str, file: str, app: str = "application") -> None:
    words = ["generate", language, "--app", f"{app}:worker", "--output", file]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output


def change_the_signature(folder: Path) -> None:
    text = (folder / "application.py").read_text()
    (folder / "application.py").write_text(text.replace("order: int", "order: str"))


def test_go_calls_python(folder: Path, go: Path, client_environment: Mapping[str, str]) -> None:
    module = (go / "go.mod").read_text()
    own = "github.com/pyworkers/pyworkers/contrib/clients/go"
    module = module.replace(f"module {own}", "module example.com/app")
    (folder / "go.mod").write_text(f"{module}\nrequire {own} v0.0.0\n\nreplace {own} => {go}\n")
    (folder / "go.sum").write_text((go / "go.sum").read_text())
    (folder / "main.go").write_text(GO)
    (folder / "jobs").mkdir()
    (folder / "odd").mkdir()

    def done(*command: str) -> subprocess.CompletedProcess[str]:
        env = {**client_environment, "GOFLAGS": f"-mod=mod {LINKED}"}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=4 * PATIENCE_S)

    generate("go", "jobs/jobs.go")
    generate("go", "odd/jobs.go", "odd")
    assert done("gofmt", "-l", ".").stdout == ""
    assert done("go", "vet", "./odd").stderr == ""
    ran = done("go", "run", ".")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [True, "EUR", [1, "a"]]
    change_the_signature(folder)
    generate("go", "jobs/jobs.go")
    vetted = done("go", "vet", ".")
    assert "cannot use 7" in vetted.stderr


def test_typescript_that_does_not_fit_does_not_compile(folder: Path, node: Path) -> None:
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "pyworkers").symlink_to(node)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "use.ts").write_text(TYPESCRIPT)

    def compiled() -> subprocess.CompletedProcess[str]:
        tsc = [str(node / "node_modules" / ".bin" / "tsc"), "--noEmit", "--strict", "--module", "nodenext"]
        options = ["--target", "esnext", "--skipLibCheck", "--types", "", "use.ts", "odd.ts"]
        return subprocess.run([*tsc, *options], capture_output=True, text=True, timeout=4 * PATIENCE_S)

    generate("ts", "jobs.ts")
    generate("ts", "odd.ts", "odd")
    right = compiled()
    assert right.returncode == 0, right.stdout
    change_the_signature(folder)
    generate("ts", "jobs.ts")
    assert "use.ts" in compiled().stdout


def test_ruby_calls_python(folder: Path, ruby: Path, client_environment: Mapping[str, str]) -> None:
    generate("ruby", "jobs.rb")
    generate("ruby", "odd.rb", "odd")
    (folder / "main.rb").write_text(RUBY)

    def done(file: str) -> subprocess.CompletedProcess[str]:
        command = ["ruby", "-w", "-I", str(ruby / "lib"), file]
        return subprocess.run(
            command, env=client_environment, capture_output=True, text=True, timeout=4 * PATIENCE_S
        )

    odd, ran = done("odd.rb"), done("main.rb")
    assert (odd.returncode, odd.stderr) == (0, "")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    receipt = {"order": 7, "currency": "EUR", "paid": True}
    assert json.loads(ran.stdout) == [receipt, [1, "#{a}"], "wrong number of arguments"]
