"""JSON text in and out: bounded and strict on the way in, canonical on the way out."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final, NoReturn

from pipeplan.core.errors import PipeplanError, SourceError

__all__ = ["MAX_FILE_BYTES", "dump_json", "parse_json", "read_text", "write_text"]

MAX_FILE_BYTES: Final = 256 * 2**20


def read_text(path: Path, error: type[SourceError]) -> str:
    """A whole regular file as UTF-8 text; raises `error` naming the file where that cannot be."""
    try:
        if not path.exists():
            raise error("there is no such file", path=path)
        if not path.is_file():
            raise error("not a regular file", path=path)
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise error(f"{size} bytes; at most {MAX_FILE_BYTES} are read", path=path)
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise error(f"not UTF-8 text (byte {fault.start})", path=path) from None
    except (OSError, ValueError) as fault:
        raise error(
            f"cannot be read: {getattr(fault, 'strerror', None) or fault}", path=path
        ) from None


def _no_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a number that JSON or a cost may hold")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {key[:80]!r} appears twice in one object")
            seen.add(key)
    return out


def parse_json(text: str, error: type[SourceError], path: str | Path | None = None) -> Any:
    """Strict JSON: no NaN, no duplicate keys, bounded depth; raises `error` with the line."""
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as fault:
        lines = text.splitlines()
        near = lines[fault.lineno - 1].strip() if fault.lineno <= len(lines) else ""
        raise error(f"not JSON: {fault.msg}", path=path, line=fault.lineno, text=near) from None
    except ValueError as fault:
        raise error(str(fault), path=path) from None
    except RecursionError:
        raise error("nested too deeply to be a description of anything", path=path) from None


def dump_json(value: Any) -> str:
    """Canonical text: same value, same bytes."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_text(path: Path, text: str, *, force: bool) -> None:
    """Write a file whole or not at all; raises PipeplanError if it exists and `force` is not given."""
    if path.exists() and not force:
        raise PipeplanError(f"{path} exists; --force overwrites it")
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            "w",
            encoding="utf-8",
            newline="\n",
            dir=path.parent,
            prefix=f".{path.name}.",
            delete=False,
        ) as handle:
            temporary = Path(handle.name)
            handle.write(text)
        temporary.chmod(0o666 & ~_umask())
        if force:
            temporary.replace(path)
        else:
            # A link fails where the name was taken meanwhile; a rename would overwrite it.
            os.link(temporary, path)
            temporary.unlink()
    except FileExistsError:
        _discard(temporary)
        raise PipeplanError(f"{path} exists; --force overwrites it") from None
    except OSError as fault:
        _discard(temporary)
        raise PipeplanError(f"{path} cannot be written: {fault.strerror or fault}") from None


def _discard(path: Path | None) -> None:
    if path is not None:
        path.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
