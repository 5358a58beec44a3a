"""TensorFlow's file of records: for each its length, a check of the length, the bytes, a check of the bytes.

Numbers are little-endian; a check is CRC-32C (Castagnoli), rotated and shifted so that a record of records is safe.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from initio.errors import InputError

POLYNOMIAL = 0x82F63B78  # of CRC-32C, reflected
MASK = 0xA282EAD8
HEADER = 12
MAX_RECORD = 1 << 16  # bytes: a benchmark's record has some hundreds
BLOCK = 1 << 25  # bytes whose checks are computed at once


def _table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


TABLE = _table()


def crc32c(texts: Sequence[bytes]) -> np.ndarray:
    """The checksums of many texts, all advanced by one byte at a time.

    >>> [hex(value) for value in crc32c([b"123456789", b""])]
    ['0xe3069283', '0x0']
    """
    order = sorted(range(len(texts)), key=lambda k: -len(texts[k]))  # those that still have bytes come first
    lengths = np.array([len(texts[k]) for k in order])
    width = int(lengths.max(initial=0))
    joined = b"".join(texts[k].ljust(width, b"\0") for k in order)
    columns = np.ascontiguousarray(np.frombuffer(joined, np.uint8).reshape(len(texts), width).T)
    crc = np.full(len(texts), 0xFFFFFFFF, np.uint32)
    for place in range(width):
        n = int(np.searchsorted(-lengths, -place))
        crc[:n] = TABLE[(crc[:n] ^ columns[place, :n]) & 0xFF] ^ crc[:n] >> 8
    result = np.empty(len(texts), np.uint32)
    result[order] = crc ^ np.uint32(0xFFFFFFFF)
    return result


def masked_crc32c(texts: Sequence[bytes]) -> np.ndarray:
    """The checksums as the file stores them."""
    crc = crc32c(texts)
    masked: np.ndarray = (crc >> 15 | crc << 17) + np.uint32(MASK)
    return masked


def is_tfrecord(start: bytes) -> bool:
    """Whether a file that begins so is one of records."""
    return len(start) >= HEADER and int(masked_crc32c([start[:8]])[0]) == struct.unpack("<I", start[8:HEADER])[0]


def records(path: Path) -> Iterator[bytes]:
    """The records of a file, each after its checks."""
    with path.open("rb") as file:
        number = 0
        while block := _block(file, path, number):
            lengths, bodies = (masked_crc32c(texts) for texts in ([b[0] for b in block], [b[2] for b in block]))
            wrong = np.flatnonzero((lengths != [b[1] for b in block]) | (bodies != [b[3] for b in block]))
            if len(wrong):
                raise InputError(f"record {number + int(wrong[0])} of {path} is damaged: its checksum is wrong")
            yield from (body for _, _, body, _ in block)
            number += len(block)


def _block(file: BinaryIO, path: Path, number: int) -> list[tuple[bytes, int, bytes, int]]:
    """Records not yet checked: length, its check, body, its check."""
    block: list[tuple[bytes, int, bytes, int]] = []
    longest = 1
    while (len(block) + 1) * longest <= BLOCK and (header := file.read(HEADER)):
        this = number + len(block)
        if len(header) < HEADER:
            raise InputError(f"{path} ends in the middle of record {this}")
        length, check = struct.unpack("<QI", header)
        if length > MAX_RECORD:
            raise InputError(f"record {this} of {path} is damaged: it claims {length} bytes")
        body = file.read(length + 4)
        if len(body) < length + 4:
            raise InputError(f"{path} ends in the middle of record {this}")
        block.append((header[:8], check, body[:-4], struct.unpack("<I", body[-4:])[0]))
        longest = max(longest, length)
    return block
