"""Values as JSON that every parser accepts."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers.api.browse.masking import HIDDEN
from pyworkers.web.json.values import TOO_DEEP, plain


class State(Enum):
    DONE = "done"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (b"a\xff", "a\\xff"),
        ("a\udcff\ud800", "a\\xff\\ud800"),
        ({"\udcff": 1, 2: 3}, {"\\xff": 1, "2": 3}),
        ((1, {"a"}), [1, ["a"]]),
        (State.DONE, "done"),
        (10**400, 10**400),
    ],
)
def test_a_value_that_json_lacks(value: Any, shown: Any) -> None:
    assert plain(value) == shown


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@given(JSON)
def test_any_value_is_valid_json(value: Any) -> None:
    text = json.dumps(plain(value), allow_nan=False, ensure_ascii=False)
    json.loads(text.encode())


def test_a_value_that_is_nested_too_deep() -> None:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    text = json.dumps(plain(value))
    assert TOO_DEEP in text
    assert text.count("[") <= 100


def test_names_are_masked_in_the_data_of_jobs_alone() -> None:
    value = {"token": 1, "args": [{"a": {"token": 2, "b": 3}}], "job": {"args": [{"token": 4}]}}
    masked = {"args": [{"a": {"token": HIDDEN, "b": 3}}], "job": {"args": [{"token": HIDDEN}]}}
    assert plain(value, ["token"]) == {"token": 1} | masked
