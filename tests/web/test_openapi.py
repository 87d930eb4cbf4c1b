"""OpenAPI: the description is valid, and every address answers as it says."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pytest
import redis
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from openapi_spec_validator import OpenAPIV31SpecValidator

from pyworkers.protocol.keys import Keys
from pyworkers.web.application import RESOURCES
from pyworkers.web.json.openapi import document
from pyworkers.web.json.resources import Resource
from pyworkers.web.json.table import columns_of
from tests.web import hostile
from tests.web.programs import Program
from tests.web.visitor import Visitor

# What a spreadsheet runs; a number may be negative.
FORMULA = re.compile(r"[=+@\t\r]|-(?![0-9.e+-]+$)")
# Servers refuse longer addresses.
LONGEST = 10_000
READ = [resource for resource in RESOURCES if resource.read]


def test_the_description_is_valid(dashboard: Visitor) -> None:
    served = Program(dashboard.root).get("/openapi.json")
    OpenAPIV31SpecValidator(served).validate()
    assert served == document(RESOURCES, "/api")


def test_the_index_names_the_description_and_all_addresses(dashboard: Visitor) -> None:
    index = Program(dashboard.root).get("")
    assert index["openapi"] == "/api/openapi.json"
    assert index["resources"] == [f"/api{resource.path}" for resource in RESOURCES]


def test_no_two_resources_match_the_same_address() -> None:
    paths = [tuple("{" if part[0] == "{" else part for part in resource.segments) for resource in RESOURCES]
    assert len(set(paths)) == len(paths)


def closed(schema: Any) -> Any:
    """The schema whose records have no other members than those described."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {name: closed(part) for name, part in schema.items()}
    return found | ({"additionalProperties": False} if "properties" in found else {})


class Walker:
    """Asks for addresses of all kinds, and compares the answers with their description."""

    def __init__(self, program: Program, resources: Sequence[Resource] = READ) -> None:
        self._program = program
        self._resources = resources
        self._described = program.get("/openapi.json")
        self.problems: list[str] = []

    def walk(self, names: Sequence[bytes]) -> None:
        """Ask for each resource, and with each of these names."""
        for resource in self._resources:
            for name in names if "{" in resource.path else names[:1]:
                path = re.sub("{[a-z]+}", quote(name, safe=""), resource.path)
                self.check(resource, path, (200, 404) if "{" in resource.path else (200,))

    def check(self, resource: Resource, path: str, wanted: Sequence[int] = (200,)) -> None:
        """Compare the answer of an address of this resource, which has one of the ``wanted`` statuses."""
        reply = self._program.ask("GET", path)
        if reply.status not in wanted:
            self.problems.append(f"{reply.status} for {path}: {reply.body[:200]!r}")
            return
        error = best_match(self._validator(resource, reply.status).iter_errors(reply.value))
        if error is not None:
            self.problems.append(f"{path}: {error.json_path}: {error.message[:300]}")
        if resource.rows is not None and reply.status == 200:
            self._check_csv(resource, path)

    def _check_csv(self, resource: Resource, path: str) -> None:
        """Read a list as a file: each row has all columns, and no cell is a formula."""
        reply = self._program.ask("GET", f"{path}?format=csv")
        csv.field_size_limit(max(csv.field_size_limit(), len(reply.body)))
        head, *rows = csv.reader(io.StringIO(reply.body.decode(), newline=""))
        if head != columns_of(resource) or any(len(row) != len(head) for row in rows):
            self.problems.append(f"{path}: rows with other cells than {head}")
        formulas = [cell for row in rows for cell in row if FORMULA.match(cell)]
        if formulas:
            self.problems.append(f"{path}: formulas {formulas[:3]}")

    def _validator(self, resource: Resource, status: int) -> Draft202012Validator:
        answers = self._described["paths"][resource.path]["get"]["responses"]
        schema = answers[str(status)]["content"]["application/json"]["schema"]
        return Draft202012Validator({**schema, "components": closed(self._described["components"])})


@pytest.fixture
def walker(dashboard: Visitor) -> Walker:
    """A walker on the dashboard of this test."""
    return Walker(Program(dashboard.root))


def test_an_empty_redis(walker: Walker) -> None:
    walker.walk([b"none"])
    assert walker.problems == []


def test_hostile_data(walker: Walker, db: redis.Redis, keys: Keys) -> None:
    hostile.fill(db, keys)
    names = [name for name in hostile.NAMES if len(name) < LONGEST]
    walker.walk([b"default", *names])
    assert walker.problems == []


def test_keys_of_other_types(walker: Walker, db: redis.Redis, keys: Keys) -> None:
    hostile.wrong_types(db, keys)
    for resource in READ:
        if "{" not in resource.path:
            walker.check(resource, resource.path, (200, 503))
    assert walker.problems == []
