"""Canonicals: the vectors of the canonical form: a JSON text, and its form, or why it is ``refused``.

A text, so that the reader of each language has its part in it: it decides what is an integer.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from typing import Any

from pyworkers.protocol.flow.canonical import canonical

# Python reads no more in an integer.
_MOST_DIGITS = 4300

_NUMBERS = """
0 -0 0.0 -0.0 0e0 -0e5 0.0e-10 1 -1 1.0 -1.0 10 10.0 1e0 1E0 1e1 1e+1 1e-1 2.50 -2.50 100e-2 10e-1 0.1e1 1.5e1
9007199254740991 9007199254740992 9007199254740993 -9007199254740993 9007199254740993.0 9223372036854775807
9223372036854775808 -9223372036854775808 -9223372036854775809 18446744073709551615 18446744073709551616
100000000000000000000 1000000000000000000000 -1000000000000000000000 123456789012345678901234567890
100000000000000000000.0 1000000000000000000000.0 1e20 1e21 1e22 1e23 -1e20 -1e21 123456789012345680000.0
999999999999999900000.0 999999999999999990000.0 1.0e20 0.1e22 1e-5 1e-6 1e-7 1.25e-6 1.25e-7 -1e-7 0.000001
0.0000001 0.1 0.2 0.3 0.30000000000000004 1.1 3.14159265358979 333333333.33333329 4.50 2e-3
0.000000000000000000000000001 5e-324 2.2250738585072011e-308 2.2250738585072014e-308
1.7976931348623157e308 -1.7976931348623157e308
1e-400 -1e-400 1424953923781206.2 4.35 0.5e-6 9.5367431640625e-7 4503599627370496.5
295147905179352830000.0 56294995342131.2
1e100 1.5e300 8.98846567431158e307 1e-307 123456.789e3 123e-20
"""
_TEXTS = [
    "",
    " ",
    "a",
    "é",
    "e\u0301",
    "ß",
    "€",
    "日本",
    "\u007f",
    "\u0080",
    "\u009f",
    "\u00ad",
    "\u200b",
    "\u2028",
    "\u2029",
    "\ufeff",
    "\ufffd",
    "\ufffe",
    "\uffff",
    "\ud7ff",
    "\ue000",
    "😀",
    "\U00010000",
    "\U0010ffff",
    "👩‍👩‍👧",
    "/",
    "</script>",
    "<>&'",
    '"',
    "\\",
    '\\"',
    "\\u0041",
    "\x00",
    "a\x00b",
    "\b\t\n\f\r\v",
    "\x1f",
    "true",
    "1e3",
]
_WRITTEN = [
    r'"\u0041\u00e9\u20ac"',
    r'"\ud83d\ude00"',
    r'"\uD83D\uDE00"',
    r'"\/"',
    r'"\"\\\/\b\f\n\r\t"',
    r'"\u0000\u001F\u001f"',
    r'"\u003c\u003e\u0026"',
    r'"\u2028"',
    r'"\u007f"',
    ' [ 1 , "a" ] ',
    '\t{ "b" : 1 ,\n"a" : [ ] }\r\n',
    "[]",
    "{}",
    "[[]]",
    "[{}]",
    '{"a":{}}',
    "null",
    "true",
    "false",
    "[null,true,false]",
    '{"b":1,"a":2}',
    '{"a":1,"A":2,"_":3,"1":4}',
    '{"10":1,"9":2,"1":3}',
    '{"":1,"a":2}',
    '{"a":1,"a":2}',
    '{"aa":1,"a":2,"ab":3,"b":4}',
    '{"é":1,"e":2,"z":3}',
    '{"a.b":1,"a":{"b":2}}',
    r'{"\ufb33":1,"\ud83d\ude00":2,"b":3,"a":{"y":[],"x":null},"":4}',
    r'{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}',
    r'{"\uffff":1,"\ud800\udc00":2,"\udbff\udfff":3,"\ue000":4}',
    r'{"\n":1,"\\":2,"\"":3,"\u0001":4}',
    '{"a":[1.0,1,1e0,"1"],"b":{"d":-0.0,"c":-0}}',
    '[7,"hello",{"note":null}]',
    "[[1,[2,[3,[4]]]]]",
    '{"peach":"This sorting order","p\u00e9ch\u00e9":"is wrong according to French","p\u00eache":"but"}',
]
_REFUSED = {
    r'"\ud800"': "a lone surrogate",
    r'"\udc00"': "a lone surrogate",
    r'"a\udfffb"': "a lone surrogate",
    r'"\ud83d"': "a lone surrogate",
    r'"\ud83d\u0041"': "a lone surrogate",
    r'"\ude00\ud83d"': "two surrogates in the wrong order",
    r'{"\ud800":1}': "a lone surrogate in a name",
    r'[1,{"a":["\udbff"]}]': "a lone surrogate",
    "1e309": "a number that no double holds",
    "-1e400": "a number that no double holds",
    "NaN": "no JSON",
    "Infinity": "no JSON",
    "-Infinity": "no JSON",
    "[NaN]": "no JSON",
    "9" * (_MOST_DIGITS + 1): "an integer of more than 4,300 digits",
    "[-1" + "0" * _MOST_DIGITS + "]": "an integer of more than 4,300 digits",
}


def cases() -> list[dict[str, Any]]:
    """The cases, without the names of the values."""
    found = [
        {"name": f"{kind} {number}", "json": written, "canonical": canonical(json.loads(written)).decode()}
        for kind, texts in _groups().items()
        for number, written in enumerate(texts)
    ]
    refused = enumerate(_REFUSED.items())
    return [*found, *({"name": f"refused {n}", "json": text, "refused": why} for n, (text, why) in refused)]


def _groups() -> dict[str, list[str]]:
    return {
        "number": _NUMBERS.split(),
        "power of ten": [f"1e{exponent}" for exponent in range(-30, 31)],
        "power of two": [f"{2.0**exponent!r}" for exponent in range(-70, 80, 3)],
        "integer": [
            *(str(number) for n in (15, 16, 21, 40, 300) for number in (10**n - 1, 10**n + 7, -(10**n) - 7)),
            "-1" + "0" * (_MOST_DIGITS - 1),
        ],
        "double": list(_doubles()),
        "text": [json.dumps(text, ensure_ascii=False) for text in _TEXTS],
        "control character": [json.dumps(chr(code)) for code in range(0x20)],
        "escaped text": [json.dumps(text) for text in _TEXTS],
        "value": _WRITTEN,
    }


def _doubles() -> Iterator[str]:
    """Doubles of any size, and doubles of sizes that people use."""
    rng = random.Random(8785)
    for _ in range(100):
        number = struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64) & ~(1 << 62)))[0]
        yield repr(number)
        yield repr(rng.uniform(-1, 1) * 10.0 ** rng.randint(-9, 23))
