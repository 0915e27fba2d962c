"""Damaged files: what disks, transfers, editors and attackers do to bytes, the same for every loader."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

_NUMBER = re.compile(rb"[-+]?\d+(?:\.\d*)?(?:[eEdD][-+]?\d+)?")
#: Numbers that parsers meet too seldom: too large for each integer type, for a float, for memory, for
#: Python's own limit of digits; negative; and spellings that one language knows and another does not.
_NUMBERS = (
    b"-1",
    b"0",
    b"-0",
    b"255",
    b"65536",
    b"2147483647",
    b"2147483648",
    b"4294967296",
    b"1500000000",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1000000000000000",
    b"1e308",
    b"1e309",
    b"-1e400",
    b"1e-400",
    b"4.0D+02",
    b"0x7fffffff",
    b"1_000",
    b"1,5",
    b"nan",
    b"-inf",
    b"1" * 400,
    b"9" * 5000,
    b"",
)
#: Little-endian integers and floats that a binary header may claim.
_FIELDS = tuple(
    number.to_bytes(size, "little", signed=number < 0)
    for size, numbers in {
        2: (-1, 0, 1, 2**15 - 1),
        4: (-1, 0, 1, 2**31 - 1, -(2**31), 1_500_000_000, 0x7FC00000, 0x7F800000),
        8: (-1, 0, 1, 2**63 - 1, -(2**63), 2**32, 10**12, 0x7FF8000000000000, 0x7FF0000000000000),
    }.items()
    for number in numbers
)
_BRACKETS = (b"[", b"{", b"(", b'{"a":', b"- ", b"/*")


def _span(data: bytes, numbers: random.Random) -> tuple[int, int]:
    # Begin and end of a piece: small ones are as likely as large ones.
    length = min(len(data), 2 ** numbers.randrange(0, max(len(data), 1).bit_length() + 1))
    begin = numbers.randint(0, len(data) - length)
    return begin, begin + length


def _times(wanted: int, length: int) -> int:
    # A large file does not become a huge one.
    return max(1, min(wanted, 1_000_000 // max(length, 1)))


def _truncate(data: bytes, numbers: random.Random) -> bytes:
    return data[: numbers.randrange(max(len(data), 1))]


def _cut_head(data: bytes, numbers: random.Random) -> bytes:
    return data[numbers.randint(1, max(len(data), 1)) :]


def _flip_bit(data: bytes, numbers: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(numbers.choice((1, 1, 2, 8, 64)) if data else 0):
        changed[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
    return bytes(changed)


def _flip_head_bit(data: bytes, numbers: random.Random) -> bytes:
    # Headers are short and decide most.
    changed = bytearray(data)
    if data:
        changed[numbers.randrange(min(len(data), 128))] ^= 1 << numbers.randrange(8)
    return bytes(changed)


def _random_bytes(data: bytes, numbers: random.Random) -> bytes:
    begin, end = _span(data, numbers)
    return data[:begin] + numbers.randbytes(end - begin) + data[end:]


def _zeros(data: bytes, numbers: random.Random) -> bytes:
    begin, end = _span(data, numbers)
    return data[:begin] + bytes(end - begin) + data[end:]


def _ones(data: bytes, numbers: random.Random) -> bytes:
    begin, end = _span(data, numbers)
    return data[:begin] + b"\xff" * (end - begin) + data[end:]


def _remove(data: bytes, numbers: random.Random) -> bytes:
    begin, end = _span(data, numbers)
    return data[:begin] + data[end:]


def _insert(data: bytes, numbers: random.Random) -> bytes:
    at = numbers.randint(0, len(data))
    return data[:at] + numbers.randbytes(numbers.choice((1, 2, 16, 500))) + data[at:]


def _repeat(data: bytes, numbers: random.Random) -> bytes:
    begin, end = _span(data, numbers)
    return data[:end] + data[begin:end] * _times(numbers.choice((1, 2, 30)), end - begin) + data[end:]


def _swap(data: bytes, numbers: random.Random) -> bytes:
    begin, end = _span(data, numbers)
    middle = numbers.randint(begin, end)
    return data[:begin] + data[middle:end] + data[begin:middle] + data[end:]


def _append(data: bytes, numbers: random.Random) -> bytes:
    return data + numbers.choice((b"\n", b"\0", b"\0" * 4096, b"trailing\n", data))


def _number(data: bytes, numbers: random.Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    # The first numbers are sizes.
    place = numbers.choice(found[:8] if numbers.random() < 0.5 else found)
    return data[: place.start()] + numbers.choice(_NUMBERS) + data[place.end() :]


def _field(data: bytes, numbers: random.Random) -> bytes:
    field = numbers.choice(_FIELDS)
    place = numbers.randrange(max(min(len(data), 128 if numbers.random() < 0.5 else len(data)), 1))
    begin = place // len(field) * len(field)
    return data[:begin] + field + data[begin + len(field) :]


def _nul(data: bytes, numbers: random.Random) -> bytes:
    at = numbers.randint(0, len(data))
    return data[:at] + b"\0" + data[at + numbers.randrange(2) :]


def _line(data: bytes, numbers: random.Random) -> bytes:
    # A line lost, doubled, moved or made very long.
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at = numbers.randrange(len(lines))
    kind = numbers.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[at])
    elif kind == 2:
        lines.insert(numbers.randrange(len(lines)), lines.pop(at))
    else:
        lines[at] = lines[at].rstrip(b"\r\n") * _times(500, len(lines[at])) + b"\n"
    return b"".join(lines)


def _deep(data: bytes, numbers: random.Random) -> bytes:
    at = numbers.randint(0, len(data))
    return data[:at] + numbers.choice(_BRACKETS) * numbers.choice((50, 2000, 100_000)) + data[at:]


def _letters(data: bytes, numbers: random.Random) -> bytes:
    return numbers.choice((data.upper(), data.lower(), data.swapcase()))


def _line_ends(data: bytes, numbers: random.Random) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", numbers.choice((b"\r\n", b"\r", b"\n\n", b" ", b"\0")))


def _encoding(data: bytes, numbers: random.Random) -> bytes:
    # As an editor saves it that took the bytes for Latin-1.
    name = numbers.choice(("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-7", "cp037"))
    return data.decode("latin-1").encode(name)


def _characters(data: bytes, numbers: random.Random) -> bytes:
    at = numbers.randint(0, len(data))
    # Not UTF-8, a lone surrogate, an overlong slash, beyond Unicode, a digit that int() takes, ends of lines.
    surrogate, overlong, beyond = b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80"
    odd = (b"\xe9", surrogate, overlong, beyond, "٣".encode(), b"\x1a", "\u2028".encode())
    return data[:at] + numbers.choice(odd) + data[at + numbers.randrange(2) :]


def _empty(data: bytes, numbers: random.Random) -> bytes:
    return numbers.choice((b"", b"\n", b"\0", b" ", b"\xef\xbb\xbf"))


#: Every kind of mutation by name.
KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "truncate": _truncate,
    "flip bit": _flip_bit,
    "flip head bit": _flip_head_bit,
    "number": _number,
    "field": _field,
    "nul": _nul,
    "repeat": _repeat,
    "remove": _remove,
    "random bytes": _random_bytes,
    "zeros": _zeros,
    "ones": _ones,
    "insert": _insert,
    "swap": _swap,
    "append": _append,
    "cut head": _cut_head,
    "line": _line,
    "characters": _characters,
    "encoding": _encoding,
    "line ends": _line_ends,
    "letters": _letters,
    "deep": _deep,
    "empty": _empty,
}


def mutations(data: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Mutated copies of a file, the same ones for the same arguments on every machine.

    Args:
        data: the sound file.
        count: how many; the kinds take turns.
        seed: of the random choices.

    Yields:
        What was done and the bytes, which differ from ``data``.
    """
    # A string as seed does not depend on the interpreter's hash.
    numbers = random.Random(f"mutations {seed}")
    names = list(KINDS)
    for index in range(count):
        name = names[index % len(names)]
        mutated = KINDS[name](data, numbers)
        if mutated == data:
            # Not every kind changes every file (text without digits, one line): these always do.
            name = "truncate" if data else "insert"
            mutated = KINDS[name](data, numbers)
        yield name, mutated
