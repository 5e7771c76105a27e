"""Files are read within bounds, and written whole or not at all."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from pipeplan.core import textfile
from pipeplan.core.errors import PipeplanError, PlanError, ProfileError
from pipeplan.core.textfile import read_text, write_text


def left_over(folder: Path) -> list[str]:
    return sorted(x.name for x in folder.iterdir())


def test_text_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_text(path, "één\nzwei\r\n", force=False)
    assert path.read_bytes() == "één\nzwei\r\n".encode()
    assert read_text(path, PlanError) == "één\nzwei\r\n"
    assert left_over(tmp_path) == ["plan.json"]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "new", "x", force=False)
        plain = tmp_path / "plain"
        plain.touch()
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
        assert (tmp_path / "new").stat().st_mode == plain.stat().st_mode
        plain.chmod(0o604)
        write_text(plain, "y", force=True)
        assert stat.S_IMODE(plain.stat().st_mode) == 0o604
    finally:
        os.umask(before)


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    with pytest.raises(PipeplanError, match=r"plan.json exists; --force overwrites it"):
        write_text(path, "new", force=False)
    assert path.read_text() == "old"
    write_text(path, "new", force=True)
    assert path.read_text() == "new"
    assert left_over(tmp_path) == ["plan.json"]


def test_a_name_taken_in_the_meantime_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    real = os.fsync

    def slow(descriptor: int) -> None:
        path.write_text("theirs")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    with pytest.raises(PipeplanError, match="exists"):
        write_text(path, "ours", force=False)
    assert path.read_text() == "theirs"
    assert left_over(tmp_path) == ["plan.json"]


@pytest.mark.parametrize("taken", [False, True])
def test_file_systems_without_links(
    taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"

    def no_link(source: Any, target: Any) -> None:
        if taken:
            path.write_text("theirs")
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    if taken:
        with pytest.raises(PipeplanError, match="exists"):
            write_text(path, "ours", force=False)
    else:
        write_text(path, "ours", force=False)
    assert path.read_text() == ("theirs" if taken else "ours")
    assert left_over(tmp_path) == ["plan.json"]


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("force", [False, True])
def test_a_failed_write_leaves_everything_as_it_was(
    fault: BaseException, force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    if force:
        path.write_text("old")

    def fail(descriptor: int) -> None:
        raise fault

    monkeypatch.setattr(os, "fsync", fail)
    expected = KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else PipeplanError
    with pytest.raises(expected) as caught:
        write_text(path, "new", force=force)
    if expected is PipeplanError:
        assert "cannot be written: No space left on device" in str(caught.value)
    assert left_over(tmp_path) == (["plan.json"] if force else [])
    if force:
        assert path.read_text() == "old"


@pytest.mark.parametrize("force", [False, True])
def test_places_that_cannot_hold_a_file(force: bool, tmp_path: Path) -> None:
    with pytest.raises(PipeplanError, match=r"there is no folder .*missing"):
        write_text(tmp_path / "missing" / "plan.json", "x", force=force)
    with pytest.raises(PipeplanError, match="is a directory"):
        write_text(tmp_path, "x", force=force)
    (tmp_path / "file").write_text("x")
    with pytest.raises(PipeplanError, match="there is no folder"):
        write_text(tmp_path / "file" / "plan.json", "x", force=force)
    for name in ("a\0b", "x" * 300):
        with pytest.raises(PipeplanError, match="cannot be written") as caught:
            write_text(tmp_path / name, "x", force=force)
        assert str(caught.value).isprintable()
    assert left_over(tmp_path) == ["file"]


def test_a_long_but_lawful_name_is_written(tmp_path: Path) -> None:
    write_text(tmp_path / ("x" * 255), "x", force=False)
    assert left_over(tmp_path) == ["x" * 255]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("force", [False, True])
def test_a_read_only_folder(force: bool, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(PipeplanError):
            write_text(path, "new", force=force)
        assert path.read_text() == "old"
    finally:
        tmp_path.chmod(0o755)


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(textfile.tempfile, "mkstemp", refuse)
    with pytest.raises(PipeplanError, match=r"plan\.json cannot be written: Permission denied"):
        write_text(tmp_path / "plan.json", "x", force=False)


def test_links_are_followed_with_force_alone(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(PipeplanError, match="exists"):
        write_text(link, "new", force=False)  # a dangling link: nothing appears at its end
    assert not target.exists()
    write_text(link, "one", force=True)
    assert target.read_text() == "one"
    with pytest.raises(PipeplanError, match="exists"):
        write_text(link, "new", force=False)
    write_text(link, "two", force=True)
    assert link.is_symlink()
    assert target.read_text() == "two"
    assert left_over(tmp_path) == ["link", "target"]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (pipe, loop):
        with pytest.raises(PipeplanError, match="not a regular file"):
            write_text(path, "x", force=True)
        with pytest.raises(PipeplanError, match="exists"):
            write_text(path, "x", force=False)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_half_a_character_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(PipeplanError, match="character 2 is half a character"):
        write_text(tmp_path / "plan.json", "ab\ud800", force=False)
    assert left_over(tmp_path) == []


def test_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    latin = tmp_path / "latin"
    latin.write_bytes(b"abc\xe9")
    large = tmp_path / "large"
    large.write_text("x" * 11)
    monkeypatch.setattr(textfile, "MAX_FILE_BYTES", 10)
    for path, pattern in (
        (tmp_path / "missing", "there is no such file"),
        (tmp_path, "not a regular file"),
        (pipe, "not a regular file"),
        (latin, r"not UTF-8 text \(byte 3\)"),
        (large, "more than 10 bytes"),
        (tmp_path / "a\0b", "."),
        (tmp_path / ("x" * 300), "cannot be read"),
    ):
        with pytest.raises(ProfileError, match=pattern) as caught:
            read_text(path, ProfileError)
        assert caught.value.path == str(path)
        assert str(caught.value).isprintable()
    large.write_text("x" * 10)
    assert read_text(large, ProfileError) == "x" * 10


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbf{}")
    assert read_text(tmp_path / "x", PlanError) == "{}"
