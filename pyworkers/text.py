"""Text from outside, made safe to show: no character of it steers a terminal, and it has a length.

Pure; used by the logs and the commands.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with everything escaped that is no visible character: newlines, changes of direction …"""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def shorten(text: str, most: int) -> str:
    """Both ends of a text of more than ``most`` characters, and how many are missing between them."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}[… {len(text) - 2 * half} characters …]{text[-half:]}"


def _escape(char: str) -> str:
    # One byte of a name that is not UTF-8.
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:x}"
    escaped = char.encode("unicode_escape", errors="surrogatepass").decode()
    return escaped if escaped != char else repr(char)
