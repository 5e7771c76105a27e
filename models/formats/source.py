"""The text of a file someone gave us: bounded, decoded strictly, never blocking on a pipe."""

import os
import stat
from pathlib import Path
from typing import Final

from pipeplan.core.errors import ProfileError

__all__ = ["MAX_FILE_BYTES", "decode", "line_at", "read_text"]

MAX_FILE_BYTES: Final = 256 * 2**20
"""Bound on the bytes of a profile: 200,000 layers need about a quarter of it."""

_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: Path) -> str:
    """The text of a regular file of at most MAX_FILE_BYTES, UTF-8 with or without byte order mark.

    Raises ProfileError naming the path for anything else: missing, a directory, a pipe or device,
    unreadable, too large, another encoding, a NUL character.
    """
    try:
        # O_NONBLOCK, because opening a FIFO that nobody writes would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise ProfileError("there is no such file", path=path) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ProfileError(f"the file cannot be opened ({reason})", path=path) from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise ProfileError("this is a directory, not a profile", path=path)
        if not stat.S_ISREG(status.st_mode):
            raise ProfileError("this is not a regular file (a pipe or a device?)", path=path)
        if status.st_size > MAX_FILE_BYTES:
            _too_large(status.st_size, path)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ProfileError(f"the file cannot be read ({error.strerror})", path=path) from None
    finally:
        os.close(descriptor)
    return decode(data, path)


def _too_large(size: int, path: str | Path) -> None:
    raise ProfileError(
        f"the file has {size} bytes; a profile of at most {MAX_FILE_BYTES} bytes is read", path=path
    )


def decode(data: bytes, path: str | Path) -> str:
    """Bytes as text; raises ProfileError with the line of the first bad byte or NUL."""
    if len(data) > MAX_FILE_BYTES:
        _too_large(len(data), path)
    if data.startswith(_UTF16_MARKS):
        raise ProfileError("the file is UTF-16; save it as UTF-8", path=path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        shown = ascii(data[error.start : error.start + 8])
        raise ProfileError(
            f"the file is not UTF-8 text: bad byte at offset {error.start}",
            path=path,
            line=line,
            text=shown,
        ) from None
    position = text.find("\0")
    if position >= 0:
        shown = text[max(0, position - 20) : position + 1]
        raise ProfileError(
            "the file holds a NUL character, so it is not a text profile",
            path=path,
            line=line_at(text, position),
            text=shown,
        )
    return text


def line_at(text: str, position: int) -> int:
    """The 1-based line of a character."""
    return text.count("\n", 0, position) + 1
