"""The envelope as text: what is written, what is read, and what ``splice`` leaves alone."""

from __future__ import annotations

import contextlib
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers.errors import BadArgumentError, BadMessageError
from pyworkers.protocol import envelope

texts = st.text('aé"\\\u2028😀', max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
# Texts that mean the same to a decoder, or that no encoder writes again.
literals = st.sampled_from(
    ["1.50", "1e3", "-0", "0.10", "1" * 40, '"\\u003c"', '"\\ud800"', '"é\\/"', "[ 1 , 2 ]", '{"b":1,"b":2}']
)
keys = st.sampled_from(["args", "jid", "x", "\\u0041", "é", "\\ud800"])
blanks = st.sampled_from(["", " ", "\n\t"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2.5, None, True]}, '{"a":[1,2.5,null,true]}'),
        ("é<>&", '"é<>&"'),
        ((1, (2,)), "[1,[2]]"),
        (10**40, "1" + "0" * 40),
        (1795225197.0, "1795225197.0"),
    ],
)
def test_encode_writes_what_ruby_writes(value: Any, text: str) -> None:
    assert envelope.encode(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_encode_refuses_numbers_that_json_does_not_have(value: float) -> None:
    with pytest.raises(ValueError):
        envelope.encode([value])


@pytest.mark.parametrize("value", [{1, 2}, b"x", object()])
def test_encode_refuses_what_json_has_no_form_for(value: object) -> None:
    with pytest.raises(TypeError):
        envelope.encode(value)


@given(values)
def test_what_is_encoded_decodes_to_the_same(value: Any) -> None:
    raw = envelope.encode({"value": value}).encode(errors="backslashreplace")
    assert envelope.decode(raw) == {"value": value}


LONG = b'{"text":"%s","a":' % (b"x" * 100_000)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not JSON"),
        (b"nonsense", "not JSON"),
        (b'{"a":NaN}', "not JSON"),
        (b'{"a":1', "not JSON"),
        (b"[1]", "not a JSON object but list"),
        (b"null", "not a JSON object but NoneType"),
        (b'{"a":"\xff"}', "not UTF-8: invalid start byte at byte 6"),
        (b'{"a":' + b"[" * 100_000, "nested too deep|not JSON"),
        (b'{"a":' + b"[" * 600 + b"]" * 600 + b"}", "nested deeper than 500 levels|nested too deep"),
        (LONG + b"[" * 600 + b"]" * 600 + b"}", "nested deeper than 500 levels|nested too deep"),
        (LONG + b'{"a":[' * 300 + b"]}" * 300 + b"}", "nested deeper than 500 levels|nested too deep"),
        (b'{"a":' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_decode_refuses_what_is_no_job(raw: bytes, reason: str) -> None:
    with pytest.raises(BadMessageError, match=reason):
        envelope.decode(raw)


def test_decode_refuses_a_job_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "MAX_BYTES", 10)
    assert envelope.decode(b'{"a":1234}') == {"a": 1234}
    with pytest.raises(BadMessageError, match="11 bytes are more than the limit of 10"):
        envelope.decode(b'{"a":12345}')


def test_decode_takes_what_may_be_enqueued_at_most() -> None:
    deep: Any = 1
    for _ in range(envelope.MAX_DEPTH + 1):
        deep = [deep]
    envelope.check_value(deep, "args[0]")
    assert envelope.decode(f'{{"args":[{"[" * 501}1{"]" * 501}]}}'.encode()) == {"args": [deep]}


@pytest.mark.parametrize("begin", [b'{"a":', LONG])
@pytest.mark.parametrize("value", ["[]", "{}"])
def test_many_brackets_side_by_side_are_not_deep(begin: bytes, value: str) -> None:
    values = [json.loads(value)] * 2001
    assert envelope.decode(begin + json.dumps(values).encode() + b"}")["a"] == values


def test_deep_is_as_deep_in_a_long_job() -> None:
    for depth, refused in ((509, False), (510, True)):
        raw = LONG + b"[" * depth + b"]" * depth + b"}"
        with pytest.raises(BadMessageError) if refused else contextlib.nullcontext():
            envelope.decode(raw)


def test_decode_reads_what_other_producers_write() -> None:
    raw = (
        b'\xef\xbb\xbf {"b":1, "a":"\\u003c\\ud83d\\ude00", "a":"last", "n":123456789012345678901234567890}\n'
    )
    assert envelope.decode(raw) == {"b": 1, "a": "last", "n": 123456789012345678901234567890}


@pytest.mark.parametrize(
    ("raw", "changes", "remove", "result"),
    [
        (b'{"a":1.50,"b":2}', {"b": 3}, (), b'{"a":1.50,"b":3}'),
        (b'{"a":1e3}', {"b": "x"}, (), b'{"a":1e3,"b":"x"}'),
        (b'{ "a" : [ 1 , 2 ] , "at":1 }', {}, ("at",), b'{"a":[ 1 , 2 ]}'),
        (b'{"a": 1, "b": [1, 2], "c" :"d"}', {}, (), b'{"a":1,"b":[1, 2],"c":"d"}'),
        (b' {"a": 1.50, "b" :2 }\n', {"c": 3}, ("d",), b' {"a": 1.50, "b" :2 ,"c":3}'),
        (b'\xef\xbb\xbf{"a":1}', {"c": 3}, (), b'{"a":1,"c":3}'),
        (b'{"a":1 ,"b":true\n,"c":null\t}', {}, ("b",), b'{"a":1,"c":null}'),
        (b'{"a":1}', {}, ("missing",), b'{"a":1}'),
        (b'{"a":1,"a":2}', {}, (), b'{"a":2}'),
        # A name twice: one is left, with the last value at the first place; both, if members are only added.
        (b'{"a": [1 ], "b" :2, "a": [3 ]}', {"b": 4}, (), b'{"a":[3 ],"b":4}'),
        (b'{"a": [1 ], "b" :2, "a": [3 ]}', {"c": 4}, (), b'{"a": [1 ], "b" :2, "a": [3 ],"c":4}'),
        (b"{}", {"a": None}, (), b'{"a":null}'),
        (b'{"\\u003c":"\\u003e"}', {"b": 1}, (), b'{"\\u003c":"\\u003e","b":1}'),
        (b'{"\\u0061":1}', {"a": 2}, (), b'{"a":2}'),
        (b'{"a":"}{,:\\""}', {"b": 1}, (), b'{"a":"}{,:\\"","b":1}'),
        (b'{"a":1}', {"jid": "\ud800"}, (), b'{"a":1,"jid":"\\ud800"}'),
    ],
)
def test_splice(raw: bytes, changes: dict[str, Any], remove: tuple[str, ...], result: bytes) -> None:
    assert envelope.splice(raw, changes, remove) == result


@given(
    st.lists(st.tuples(keys, literals | values.map(json.dumps)), max_size=6, unique_by=lambda item: item[0]),
    blanks,
    st.dictionaries(st.sampled_from(["error_class", "jid"]), values, max_size=2),
)
def test_splice_keeps_every_other_member_byte_for_byte(
    members: list[tuple[str, str]], blank: str, changes: dict[str, Any]
) -> None:
    source = "{" + ",".join(f'{blank}"{key}"{blank}:{blank}{text}{blank}' for key, text in members) + "}"
    result = envelope.splice(source.encode(), changes)
    # The blanks around them may go where something else was taken out.
    for key, text in members:
        if key not in changes:
            variants = f'"{key}":{text}', f'"{key}"{blank}:{blank}{text}'
            assert any(variant.encode() in result for variant in variants)
    expected = {**envelope.decode(source.encode()), **changes}
    assert envelope.decode(result) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{",
        b'{"a"',
        b'{"a":}',
        b'{"a" 1}',
        b'{"a":01}',
        b'{"a":tru}',
        b'{"a":1}}',
        b"{1:2}",
        b"\xff",
    ],
)
def test_splice_refuses_what_is_no_object(raw: bytes) -> None:
    with pytest.raises(BadMessageError):
        envelope.splice(raw, {"x": 1})


def test_a_jid_is_24_lowercase_hex_digits() -> None:
    class Zeros(random.Random):
        def getrandbits(self, k: int, /) -> int:
            return 0

    assert envelope.new_jid(Zeros()) == "0" * 24
    assert re.fullmatch("[0-9a-f]{24}", envelope.new_jid(random.Random(1)))


@pytest.mark.parametrize(
    ("jid", "expected"),
    [
        ("0" * 24, True),
        ("a-B_9.x:1", True),
        ("", False),
        ("a b", False),
        ("é", False),
        ('a"', False),
        ("a\n", False),
    ],
)
def test_a_plain_id_is_stored_without_escapes(jid: str, expected: bool) -> None:
    assert envelope.is_plain_id(jid) is expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "args[0] is nan"),
        ([1, {"a": [float("inf")]}], "args[0][1]['a'][0] is inf"),
        ({1: 2}, "args[0] has the key 1; JSON keys are strings"),
        ([{"a": {None: 1}}], "args[0][0]['a'] has the key None"),
        ({3}, "args[0] is of type set"),
        (b"x", "args[0] is of type bytes"),
        ([-(10**4300)], "args[0][0] is an integer of more than 4,300 digits"),
        ("a\ud800", "args[0] holds a lone surrogate at character 1"),
        ({"\udfff": 1}, "args[0] key '\\udfff' holds a lone surrogate at character 0"),
        (1j, "args[0] is of type complex"),
    ],
)
def test_check_value_names_the_bad_value(value: object, message: str) -> None:
    with pytest.raises(BadArgumentError) as caught:
        envelope.check_value(value, "args[0]")
    assert caught.value.message.startswith(message)


def test_check_value_ends_on_a_list_that_holds_itself() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadArgumentError, match="nested deeper than 500 levels"):
        envelope.check_value(endless, "args[0]")


@given(values)
def test_check_value_takes_all_of_json(value: Any) -> None:
    envelope.check_value(value, "args[0]")
