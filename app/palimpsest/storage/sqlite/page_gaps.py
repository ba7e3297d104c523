"""Zeroes the unused room in the pages of a SQLite file, where copies of deleted rows may be left.

`secure_delete` zeroes a deleted row and each freed page. But where SQLite has moved rows between pages, their
copies stay between a page's pointers and its cells (measured: 13 of 6,000 in tables filled in random order).
A VACUUM would remove them: it needs memory for the whole file in a library that keeps temporary files there,
and all writers wait. The layout of pages is that of sqlite.org/fileformat2.html, section 1.6.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence

# The first byte of a page of a B-tree, and the length of its header. All other pages begin with the number of
# a page, whose first byte is 0 or 1 in files of fewer pages than `_MOST_PAGES` (137 GB).
_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}
_MOST_PAGES = 1 << 25
_CHUNK_BYTES = 1 << 20


def pages_with_remains(descriptor: int) -> list[int]:
    """Offsets of pages whose unused room was not zero when it was read, without a lock. OSError."""
    size = _page_size(descriptor)
    if os.fstat(descriptor).st_size >= size * _MOST_PAGES:
        raise OSError(errno.EFBIG, "the file has too many pages")
    if any(os.pread(descriptor, 4, 52)):
        # Its pages of pointers begin with 1 to 5. No file of ours is made so; VACUUM can make one of it.
        raise OSError(errno.EINVAL, "the file has auto_vacuum")
    found = []
    at = 0
    while chunk := os.pread(descriptor, _CHUNK_BYTES, at):
        found += [at + start for start in range(0, len(chunk), size) if _gap(chunk, start, size)]
        at += len(chunk) - len(chunk) % size or len(chunk)
    # The first page, which has a header of its own, holds the schema and nobody's text.
    return [page for page in found if page]


def zero_remains(descriptor: int, pages: Sequence[int]) -> None:
    """Zero the unused room of these pages and sync the file.

    The caller holds the write lock while the log is empty: then nobody writes to the file. Readers use no
    byte of what is written, nor does a power cut tear anything else.
    """
    size = _page_size(descriptor)
    for at in pages:
        if gap := _gap(os.pread(descriptor, size, at), 0, size):
            os.pwrite(descriptor, bytes(gap[1] - gap[0]), at + gap[0])
    os.fsync(descriptor)


def _page_size(descriptor: int) -> int:
    (size,) = struct.unpack(">H", os.pread(descriptor, 2, 16))
    return 65536 if size == 1 else int(size)


def _gap(data: bytes, start: int, size: int) -> tuple[int, int] | None:
    """Where the unused room of the page at `start` begins and ends, if a byte of it is not zero."""
    header = _HEADERS.get(data[start])
    if header is None or start + size > len(data):
        return None
    _, cells, content = struct.unpack_from(">HHH", data, start + 1)
    begin, end = start + header + 2 * cells, start + (content or 65536)
    if begin >= end or end > start + size or data.count(0, begin, end) == end - begin:
        return None
    return begin, end
