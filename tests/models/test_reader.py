"""Any profile by path or name; the format goes by content; bad files give one clear error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeplan.core import textfile
from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.models.formats import dump_profile, read_profile, read_profile_text

GRAPH_TXT = (
    "a -- Conv -- forward_compute_time=1.0, backward_compute_time=2.0, "
    "activation_size=4.0, parameter_size=0.0\n"
)
JSON = dump_profile(LayerGraph.build([Layer("a", 1, 2, 4)], [], metadata={"batch": 1}))


def test_the_name_does_not_decide_the_format(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(GRAPH_TXT)
    (tmp_path / "two.graph.txt").write_text(JSON)
    assert read_profile(tmp_path / "one.json").format == "graph.txt"
    assert read_profile(tmp_path / "two.graph.txt").format == "pipeplan.profile/1"


@pytest.mark.parametrize(
    ("path", "name"),
    [("x/vgg.graph.txt", "vgg"), ("nets/gnmt/graph.txt", "gnmt"), ("graph.txt", "graph")],
)
def test_graphs_are_named_after_their_file(path: str, name: str) -> None:
    assert read_profile_text(GRAPH_TXT, path).graph.name == name


def test_a_byte_order_mark_is_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_bytes(b"\xef\xbb\xbf" + GRAPH_TXT.encode())
    assert len(read_profile(path).graph) == 1


def test_a_file_goes_before_a_packaged_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    packaged = read_profile("vgg16")
    assert packaged.graph.name == "vgg16"
    assert len(packaged.graph) > 30
    (tmp_path / "vgg16").mkdir()
    assert len(read_profile("vgg16").graph) > 30
    (tmp_path / "vgg16").rmdir()
    (tmp_path / "vgg16").write_text(GRAPH_TXT)
    assert len(read_profile("vgg16").graph) == 1


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ProfileError, match=r"packaged: .*resnet50.*vgg16.*'vgg17'"):
        read_profile("vgg17")


@pytest.mark.parametrize("content", [b"", b"  \n\t\n"])
def test_an_empty_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match="empty"):
        read_profile(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(b"node1 -- \xff\xfe\n")
    with pytest.raises(ProfileError, match="UTF-8"):
        read_profile(path)
    path.write_bytes(b"node1 --\nIn\0put\n")
    with pytest.raises(ProfileError, match="NUL") as caught:
        read_profile(path)
    assert caught.value.line == 2


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="not a regular file"):
        read_profile(tmp_path)
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    with pytest.raises(ProfileError, match="not a regular file"):
        read_profile(fifo)
    with pytest.raises(ProfileError, match="no such file"):
        read_profile(tmp_path / "absent")
    with pytest.raises(ProfileError):
        read_profile("nul\0name")
    with pytest.raises(ProfileError):
        read_profile("x" * 5000)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(GRAPH_TXT)
    path.chmod(0)
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profile(path)


def test_a_file_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textfile, "MAX_FILE_BYTES", 10)
    path = tmp_path / "large"
    path.write_text(GRAPH_TXT)
    with pytest.raises(ProfileError, match="10 bytes"):
        read_profile(path)


@pytest.mark.parametrize(
    "text", ["hello\nworld", "<html></html>", "a,b,c\n1,2,3", "import torch\nx = 1 -- 2"]
)
def test_other_text(text: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read_profile_text(text, "x.txt")
    assert caught.value.path == "x.txt"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"maxFPGAs": 1, "maxSizePerFPGA": 2, "nodes": []}', "dnn-partitioning workload"),
        ('{"cpus": [], "fpgas": []}', "dnn-partitioning expert split"),
        ('{"maxDevices": 1, "mbsInBatch": 2, "nodes": []}', "Piper workload"),
        ('{"nodes": [{"TMPCs": {}}]}', "Piper workload"),
        ('{"nodes": [{"fpgaLatency": 1}]}', "dnn-partitioning workload"),
        ('{"stage_to_rank_map": {}}', "PipeDream rank map"),
        ('{"traceEvents": []}', "Chrome trace"),
    ],
)
def test_other_formats_are_recognised(text: str, what: str) -> None:
    with pytest.raises(ProfileError, match=f"this is a {what}.*not supported"):
        read_profile_text(text, "x.json")


def test_reading_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from pipeplan.models.formats import read_profile\n"
        "from pipeplan.models.profiles import list_profiles\n"
        "read_profile('vgg16'); list_profiles()\n"
        "import pipeplan.models.zoo\n"
        "print(sorted({'torch', 'numpy', 'ortools'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
