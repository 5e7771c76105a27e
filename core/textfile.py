"""Text files: read within bounds, written whole or not at all."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipeplan.core.errors import PipeplanError, SourceError, shown

__all__ = ["MAX_FILE_BYTES", "read_text", "write_bytes", "write_text"]

MAX_FILE_BYTES: Final = 256 * 2**20


def read_text(path: Path, error: type[SourceError]) -> str:
    """A whole regular file as UTF-8 text; raises `error` naming the file where that cannot be."""
    try:
        if not path.exists():
            raise error("there is no such file", path=path)
        if not path.is_file():
            raise error("not a regular file", path=path)
        with path.open("rb") as handle:
            content = handle.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as fault:
        raise error(f"cannot be read: {_reason(fault)}", path=path) from None
    if len(content) > MAX_FILE_BYTES:
        raise error(f"more than {MAX_FILE_BYTES} bytes, which is all that is read", path=path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise error(f"not UTF-8 text (byte {fault.start})", path=path) from None


def write_text(path: Path, text: str, *, force: bool) -> None:
    """Write a file as UTF-8, whole or not at all; raises PipeplanError as `write_bytes` does, and
    for text that UTF-8 cannot hold."""
    try:
        content = text.encode()
    except UnicodeEncodeError as fault:
        raise PipeplanError(
            f"{_printable(path)} cannot be written: character {fault.start} is half a character"
        ) from None
    write_bytes(path, content, force=force)


def write_bytes(path: Path, content: bytes, *, force: bool) -> None:
    """Write a file whole or not at all.

    Raises PipeplanError if something of that name exists and `force` is not given, and where the
    file cannot be written; whatever is there then stays as it was. With `force` a symbolic link is
    followed; only a regular file is replaced, and its permissions are kept.
    """
    name = _printable(path)
    try:
        target = path
        mode = 0o666 & ~_umask()
        if os.path.lexists(path):
            if path.is_dir():
                raise PipeplanError(f"{name} is a directory")
            if not force:
                raise PipeplanError(f"{name} exists; --force overwrites it")
            target = Path(os.path.realpath(path))
            if os.path.lexists(target):
                if not target.is_file():
                    raise PipeplanError(f"{name} is not a regular file; it is not overwritten")
                mode = stat.S_IMODE(target.stat().st_mode)
        if not target.parent.is_dir():
            raise PipeplanError(f"{name} cannot be written: there is no folder {target.parent}")
        _write(target, content, mode, replace=force)
    except FileExistsError:
        raise PipeplanError(f"{name} exists; --force overwrites it") from None
    except (OSError, ValueError) as fault:
        raise PipeplanError(f"{name} cannot be written: {_reason(fault)}") from None


def _write(target: Path, content: bytes, mode: int, *, replace: bool) -> None:
    """Fill a temporary file beside the target, and give it the target's name at the end."""
    descriptor, name = tempfile.mkstemp(prefix=".pipeplan-", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.chmod(mode)
        if replace:
            temporary.replace(target)
        else:
            _name(temporary, target)
    finally:
        # Gone after a rename; left over after a link, an error or Ctrl-C.
        with suppress(FileNotFoundError):
            temporary.unlink()


def _name(temporary: Path, target: Path) -> None:
    """Give a file a second name; FileExistsError where it was taken meanwhile, which a rename would
    overwrite."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links: reserve the name, then rename over the reservation.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        temporary.replace(target)


def _printable(path: Path) -> str:
    return str(path) if str(path).isprintable() else shown(str(path))


def _reason(fault: OSError | ValueError) -> str:
    return getattr(fault, "strerror", None) or str(fault)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
