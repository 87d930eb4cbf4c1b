"""The canonical form of arguments: the same text in every language."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
from typing import Any

import pytest

from pyworkers.protocol.flow.canonical import canonical
from tests.conftest import missing


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("2", "2"), ("2.0", "2"), ("2e0", "2"), ("-2.50", "-2.5"), ("0", "0"), ("-0", "0"), ("-0.0", "0"),
        ("0.0", "0"), ("1e20", "100000000000000000000"), ("1e21", "1e+21"), ("-1e21", "-1e+21"),
        ("123456789012345680000.0", "123456789012345680000"), ("1.5e300", "1.5e+300"),
        ("1e-6", "0.000001"), ("1.25e-6", "0.00000125"), ("1e-7", "1e-7"), ("1.25e-7", "1.25e-7"),
        ("5e-324", "5e-324"), ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("0.1", "0.1"), ("333333333.33333329", "333333333.3333333"), ("9007199254740993", "9007199254740993"),
        ("9007199254740993.0", "9007199254740992"), ("1" + "0" * 40, "1" + "0" * 40), ("-12", "-12"),
        ("true", "true"), ("null", "null"), ("[]", "[]"), ("{}", "{}"), (' [ 1 , "a" ] ', '[1,"a"]'),
        (r'"\u2028\u2029<>&\/é\u007f"', '"\u2028\u2029<>&/é\x7f"'),
        (r'"\"\\\b\f\n\r\t\u0000\u001F"', r'"\"\\\b\f\n\r\t\u0000\u001f"'),
        (r'"\ud83d\ude00"', '"😀"'),
        # By code units: U+1F600 begins with D83D, before U+FB33; by code points, it would be behind it.
        (r'{"\ufb33":1,"\ud83d\ude00":2,"b":3,"a":{"y":[],"x":null},"":4}',
         '{"":4,"a":{"x":null,"y":[]},"b":3,"😀":2,"\ufb33":1}'),
    ],
)  # fmt: skip
def test_a_value_has_one_text(written: str, text: str) -> None:
    assert canonical(json.loads(written)) == text.encode()


@pytest.mark.parametrize("value", ["\ud800", {"\udc00": 1}, float("nan"), float("-inf"), {1: 2}, {1}, b"x"])
def test_what_json_does_not_carry_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        canonical([value])


def test_doubles_are_written_as_in_ecmascript() -> None:
    if shutil.which("node") is None:
        missing("node is not installed")
    rng = random.Random(8785)
    bits = (struct.unpack("<d", rng.randbytes(8))[0] for _ in range(5000))
    values = [value for value in bits if value == value and abs(value) != float("inf")]
    values += [rng.uniform(-1, 1) * 10.0 ** rng.randint(-12, 25) for _ in range(5000)]
    code = "process.stdout.write(JSON.stringify(JSON.parse(require('fs').readFileSync(0))))"
    done = subprocess.run(
        ["node", "-e", code], input=json.dumps(values).encode(), stdout=subprocess.PIPE, check=True
    )
    assert canonical(values) == done.stdout
