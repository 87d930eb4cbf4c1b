"""``pyworkers generate``: the jobs of an application for other languages, and when a file is out of date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from pyworkers.cli import main
from pyworkers.cli.stubs import golang, typescript

CODE = '''
from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal

from pyworkers import Worker

worker = Worker()


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    """A place on the map."""

    x: float
    colour: Colour = Colour.RED


@worker.job(queue="mail")
def send(user_id: int, subject: str = "hello", *tags: str) -> None:
    """Send a mail.

    And more.
    """


@worker.job(queue="shop", name="shop.charge")
def charge(points: list[Point], when: datetime, kind: Literal["a", "b"] | None = None) -> dict[str, Point]:
    return {}


@worker.job
def loose(anything, other: "Missing" = None, *, named: int = 0): ...
'''
TYPESCRIPT = """// Made by `pyworkers generate ts --app tasks:worker`: a change here is lost.
import type { Call, Client, Json } from "pyworkers";

export type Colour = "red" | "blue";

/** A place on the map. */
export type Point = { x: number; colour?: Colour };

export type LooseArgs = [anything: Json, other?: Json];

export type LooseResult = Json;

export type SendArgs = [user_id: number, subject?: string, ...tags: string[]];

export type SendResult = null;

export type ShopChargeArgs = [points: Point[], when: string, kind?: "a" | "b" | null];

export type ShopChargeResult = { [name: string]: Point };

/** The jobs of the application. */
export interface Jobs {
  readonly loose: Call<LooseArgs, LooseResult>;
  /** Send a mail. */
  readonly send: Call<SendArgs, SendResult>;
  readonly "shop.charge": Call<ShopChargeArgs, ShopChargeResult>;
}

/** The jobs, enqueued by this client. */
export function jobs(client: Client): Jobs {
  return {
    loose: client.call<LooseArgs, LooseResult>("loose", { queue: "default" }),
    send: client.call<SendArgs, SendResult>("send", { queue: "mail" }),
    "shop.charge": client.call<ShopChargeArgs, ShopChargeResult>("shop.charge", { queue: "shop" }),
  };
}
"""
RUBY = """    # Send a mail.
    #
    # @param user_id [Integer]
    # @param subject [String]
    # @param tags [Array<String>]
    # @return [String] the id; the result is [nil]
    def send(user_id, subject = NONE, *tags, **options)
      __enqueue("mail", "send", [user_id, subject, *tags], options)
    end

    # @param points [Array<Hash>]
    # @param when_ [String]
    # @param kind [String, nil]
    # @return [String] the id; the result is [Hash]
    def shop_charge(points, when_, kind = NONE, **options)
      __enqueue("shop", "shop.charge", [points, when_, kind], options)
    end
"""
POINT = {"x": 1, "colour": "blue"}


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["generate", *words, "--app", "tasks:worker"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.py").write_text(CODE)
    return tmp_path


def test_a_schema_takes_what_the_jobs_take(folder: Path) -> None:
    assert run("schema").output.endswith("jobs.schema.json: written\n")
    document = json.loads((folder / "jobs.schema.json").read_text())
    assert {name: job["queue"] for name, job in document["jobs"].items()} == {
        "send": "mail",
        "shop.charge": "shop",
        "loose": "default",
    }
    assert document["jobs"]["send"]["description"] == "Send a mail."

    def takes(job: str, *args: Any) -> bool:
        schema = {**document["jobs"][job]["args"], "$defs": document["$defs"]}
        Draft202012Validator.check_schema(schema)
        return Draft202012Validator(schema).is_valid(list(args))

    assert takes("send", 7) and takes("send", 7, "hello", "a", "b")
    assert not takes("send") and not takes("send", "x") and not takes("send", 7, "hello", 1)
    assert takes("shop.charge", [POINT], "2030-01-31T12:00:00Z", "a") and takes("loose", {"any": [1]}, None)
    assert not takes("shop.charge", [{**POINT, "colour": "green"}], "2030-01-31T12:00:00Z")
    assert not takes("shop.charge", [POINT], "2030-01-31T12:00:00Z", "a", "more")


def test_a_file_that_is_not_up_to_date_ends_with_1(folder: Path) -> None:
    stale = run("ts", "--check")
    assert stale.exit_code == 1
    words = "run pyworkers generate ts --app tasks:worker --output jobs.ts"
    assert stale.stderr.endswith(f"jobs.ts is not up to date: {words}\n")
    assert not (folder / "jobs.ts").exists()
    assert run("ts").exit_code == 0
    assert (folder / "jobs.ts").read_text() == TYPESCRIPT
    current = run("ts", "--check", "--json")
    assert (current.exit_code, json.loads(current.stdout)["stale"]) == (0, False)
    (folder / "tasks.py").write_text(CODE.replace("user_id: int", "user_id: str"))
    assert run("ts", "--check").exit_code == 1
    assert "user_id: string" in run("ts", "--output", "-").stdout


def test_the_folder_of_the_file_is_made(folder: Path) -> None:
    assert run("go", "--output", "shop/jobs/jobs.go").exit_code == 0
    assert (folder / "shop/jobs/jobs.go").exists()
    refused = run("go", "--output", "tasks.py/jobs.go")
    assert refused.exit_code == 2 and "tasks.py/jobs.go: cannot be " in refused.stderr


def test_ruby_has_a_method_for_each_job() -> None:
    assert RUBY in run("ruby", "--output", "-").stdout


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "Json"),
        ({"type": "array", "items": True}, "Json[]"),
        ({"type": "integer"}, "number"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "(string | null)[]"),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {}]}, "[number, Json]"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "{ [name: string]: boolean }"),
        ({"type": "object", "properties": {"a-b": {"const": 7}}}, '{ "a-b"?: 7 }'),
        ({"enum": ["a", 1, None]}, '"a" | 1 | null'),
        ({"$ref": "#/$defs/Unknown"}, "Json"),
    ],
)
def test_a_schema_is_a_type_of_typescript(schema: Any, text: str) -> None:
    found = {"jobs": [], "$defs": {"Probe": schema}}
    assert f"export type Probe = {text};" in typescript.written("a:b", found)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "any"),
        ({"type": "integer"}, "int64"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "*string"),
        ({"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]}, "[]float64"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "any"),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {}]}, "[]any"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "map[string]bool"),
        ({"enum": ["a", "b"], "type": "string"}, "string"),
    ],
)
def test_a_schema_is_a_type_of_go(schema: Any, text: str) -> None:
    job = {"name": "send", "queue": "q", "about": "", "parameters": [], "result": {}}
    found = {"jobs": [job], "$defs": {"Probe": schema}}
    assert f"type Probe {text}\n" in golang.written("a:b", found)


def test_two_jobs_of_one_name_in_typescript_have_types_of_their_own() -> None:
    job = {"queue": "q", "about": "Ends */ here.", "parameters": [], "result": {}}
    both = [{"name": name, **job} for name in ("a.b", "a-b")]
    text = typescript.written("a:b", {"jobs": both, "$defs": {}})
    assert "export type ABArgs = [];" in text and "export type ABArgs2 = [];" in text
    assert "/** Ends * / here. */" in text
