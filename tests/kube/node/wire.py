"""As much of protocol buffers as the device-plugin API needs: messages of texts, flags and messages.

A message is a list of (field number, value); what an API's fields mean stands where they are used.
"""

from collections.abc import Iterator

VARINT, LENGTH = 0, 2
CONTINUED, PAYLOAD = 0x80, 0x7F

Value = str | bytes | bool


def encode(*fields: tuple[int, Value]) -> bytes:
    """A message; a message within it is given as the bytes of its own encoding."""
    return b"".join(_field(number, value) for number, value in fields)


def decode(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Each field of a message, in order. Raises ValueError for what is of neither kind that is spoken here."""
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        value, place = _read_varint(message, place)
        if key & 7 == VARINT:
            yield key >> 3, value
        elif key & 7 == LENGTH:
            yield key >> 3, message[place : place + value]
            place += value
        else:
            raise ValueError(f"wire type {key & 7} is not spoken here")


def _field(number: int, value: Value) -> bytes:
    if isinstance(value, bool):
        return _varint(number << 3 | VARINT) + _varint(int(value))
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | LENGTH) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= CONTINUED:
        found.append(number & PAYLOAD | CONTINUED)
        number >>= 7
    found.append(number)
    return bytes(found)


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if place >= len(message):
            raise ValueError("a number ends in its middle")
        byte = message[place]
        number |= (byte & PAYLOAD) << shift
        place, shift = place + 1, shift + 7
        if not byte & CONTINUED:
            return number, place
