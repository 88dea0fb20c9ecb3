"""Bytes of a trace file in blocks that end at a line's end, decompressed on the way."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Protocol

import zstandard

from autoscaler.errors import TraceError

# Large enough that Polars' threads pay, small enough to stay in memory that is already mapped.
BLOCK_BYTES = 16 * 2**20
_GZIP, _ZSTD, PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_BOM = b"\xef\xbb\xbf"
# zstd swells up to 32,000-fold (128 KiB in 4 bytes), and a slice is unpacked in one go.
_ZSTD_SLICE_BYTES = 2 * 1024
# Real traces pack 3 to 30-fold, the most regular synthetic ones 80-fold; a bomb, a thousandfold.
_MOST_SWELLING, _SMALL_BYTES = 200, 4 * 2**20


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Counted:
    """Counts the bytes that are read of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.bytes = 0

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self.bytes += len(data)
        return data


class _ZstdReader:
    """Reads one or more zstd frames; unlike the library's own reader it notices a cut-off one."""

    def __init__(self, file: _Readable) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._ready = bytearray()

    def read(self, size: int, /) -> bytes:
        while len(self._ready) < size:
            piece = self._frame.unused_data if self._frame.eof else b""
            piece = piece or self._file.read(_ZSTD_SLICE_BYTES)
            if not piece:
                if not self._frame.eof:
                    raise EOFError("the zstd stream is cut off")
                break
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._ready += self._frame.decompress(piece)
        out = bytes(self._ready[:size])
        del self._ready[:size]
        return out


def open_trace(path: str) -> BinaryIO:
    """The file, opened.

    Raises:
        TraceError: missing, a directory, not permitted.
    """
    try:
        return Path(path).open("rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise TraceError(f"{path}:0: cannot be read: {_reason(error)}") from error


def is_parquet(file: BinaryIO, path: str) -> bool:
    """Whether the file begins as Parquet does; leaves it at its beginning."""
    return _magic(file, path) == PARQUET


def blocks(
    file: BinaryIO,
    path: str,
    on_bytes: Callable[[int], None] | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[tuple[int, bytes]]:
    """``(line number of the first line, block)``; every block but the last ends with a newline.

    gzip and zstd are recognised by their first bytes; a byte-order mark is dropped.

    Args:
        file: opened by ``open_trace``.
        path: for messages.
        on_bytes: called with the bytes of the file (as stored) read so far.
        block_bytes: about how long a block is; no line may be longer.

    Raises:
        TraceError: unreadable, a damaged or cut-off compressed stream, one that swells beyond
            all measure, or an endless line.
    """
    magic = _magic(file, path)
    stream: _Readable = file
    packed: _Counted | None = None
    if magic.startswith(_GZIP):
        packed = _Counted(file)
        stream = gzip.GzipFile(fileobj=packed)  # type: ignore[call-overload]  # it reads, no more
    elif magic == _ZSTD:
        packed = _Counted(file)
        stream = _ZstdReader(packed)
    line, rest, first, unpacked = 1, b"", True, 0
    while True:
        try:
            chunk = stream.read(block_bytes)
        except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
            raise TraceError(f"{path}:{line}: cannot be read: {_reason(error)}") from error
        unpacked += len(chunk)
        if packed is not None and unpacked > max(_SMALL_BYTES, _MOST_SWELLING * packed.bytes):
            raise TraceError(
                f"{path}:{line}: must not unpack to more than {_MOST_SWELLING} times its size; "
                f"got {unpacked:,} bytes out of {packed.bytes:,}"
            )
        if first:
            chunk, first = chunk.removeprefix(_BOM), False
        if on_bytes is not None and file.seekable():
            on_bytes(file.tell())
        if not chunk:
            break
        cut = chunk.rfind(b"\n") + 1
        if cut == 0:
            rest += chunk
            if len(rest) > block_bytes:
                raise TraceError(
                    f"{path}:{line}: must be shorter than {block_bytes:,} bytes a line"
                )
            continue
        block = rest + chunk[:cut]
        rest = chunk[cut:]
        yield line, block
        line += block.count(b"\n")
    if rest:
        yield line, rest


def read_ahead(supply: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The same blocks, each read and decompressed while the one before it is worked on."""
    with ThreadPoolExecutor(1, "trace-reader") as reader:
        coming = reader.submit(next, supply, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, supply, None)
            yield block


def _magic(file: BinaryIO, path: str) -> bytes:
    try:
        return bytes(file.peek(4)[:4]) if hasattr(file, "peek") else b""
    except OSError as error:
        raise TraceError(f"{path}:0: cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())
