"""Cluster files: what they may say, and that every mistake is told with its line."""

from pathlib import Path

import pytest

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.cluster_toml import parse_cluster, read_cluster
from pipeplan.core.errors import ClusterError

WHOLE = """\
memory = "16GB"
duplex = "half"

[[level]]
name = "NVLink"
children = 8
bandwidth = "4GiB/s"
latency = "5us"

[[level]]
children = 2
bandwidth = 2147483648
"""


def test_every_key_is_read() -> None:
    assert parse_cluster(WHOLE, "c.toml") == Cluster(
        (Level(8, 4 * 2**30, 0.005, "NVLink"), Level(2, 2.0 * 2**30)), 16 * 10**9, "half"
    )


def test_what_may_be_left_out() -> None:
    text = "[[level]]\nchildren = 4\nbandwidth = '10Gb/s'\n"
    assert parse_cluster(text, "c.toml") == Cluster((Level(4, 1.25e9),), None, "full")


def test_levels_written_in_line() -> None:
    text = "level = [{children = 4, bandwidth = '1GB/s'}]\n"
    assert parse_cluster(text, "c.toml") == Cluster((Level(4, 1e9),))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "innermost first"),
        ("children = 8", 1, "unknown key 'children'"),
        ("level = 3", 1, "[[level]]"),
        ("[[level]]\nchildren = 8", 1, "level 1 has no bandwidth"),
        ("[[level]]\nbandwidth = 8", 1, "level 1 has no children"),
        ("\n[[level]]\nchildren = 0\nbandwidth = 1", 3, "a level has 0 children"),
        ("[[level]]\nchildren = 2.5\nbandwidth = 1", 2, "whole number"),
        ("[[level]]\nchildren = true\nbandwidth = 1", 2, "whole number"),
        ("[[level]]\nchildren = 8\nbandwidth = '4 parsecs'", 3, "not a bandwidth"),
        ("[[level]]\nchildren = 8\nbandwidth = 0", 3, "a bandwidth is 0.0"),
        ("[[level]]\nchildren = 8\nbandwidth = -1", 3, "not a bandwidth"),
        ("[[level]]\nchildren = 8\nbandwidth = inf", 3, "not a bandwidth"),
        ("[[level]]\nchildren = 8\nbandwidth = [1]", 3, "neither text nor a number"),
        ("[[level]]\nchildren = 8\nbandwidth = 1\nlatncy = 1", 4, "unknown key 'latncy'"),
        ("[[level]]\nchildren = 8\nbandwidth = 1\nlatency = '5 days'", 4, "not a duration"),
        ("[[level]]\nchildren = 8\nbandwidth = 1\nname = 3", 4, "name"),
        ("memory = 'much'\n[[level]]\nchildren = 8\nbandwidth = 1", 1, "not a size"),
        ("memory = 0\n[[level]]\nchildren = 8\nbandwidth = 1", 1, "above 0"),
        ("duplex = 'both'\n[[level]]\nchildren = 8\nbandwidth = 1", 1, "full or half"),
        ("[[level]]\nchildren = 8\nbandwidth = = 1", 3, "not TOML"),
        ("a = " + "[" * 5000, None, "nested too deeply"),
    ],
)
def test_mistakes_are_told_with_their_line(text: str, line: int | None, words: str) -> None:
    with pytest.raises(ClusterError) as caught:
        parse_cluster(text, "c.toml")
    assert words in str(caught.value)
    assert caught.value.path == "c.toml"
    assert caught.value.line == line


def test_the_second_level_s_line_is_its_own() -> None:
    text = WHOLE.replace("children = 2", "children = -2")
    with pytest.raises(ClusterError) as caught:
        parse_cluster(text, "c.toml")
    assert caught.value.line == 11


def test_too_many_devices_are_refused() -> None:
    level = "[[level]]\nchildren = 4096\nbandwidth = 1\n"
    with pytest.raises(ClusterError, match="more than 65536 devices"):
        parse_cluster(level + level, "c.toml")


def test_files(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no such file"):
        read_cluster(tmp_path / "absent.toml")
    path = tmp_path / "c.toml"
    path.write_text(WHOLE, encoding="utf-8")
    assert read_cluster(path).devices == 16
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ClusterError, match="UTF-8"):
        read_cluster(path)


def test_a_number_beyond_what_python_reads_names_its_line() -> None:
    text = f"[[level]]\nchildren = 2\nbandwidth = {'9' * 5000}\n"
    with pytest.raises(ClusterError, match="too many digits") as caught:
        parse_cluster(text, "c.toml")
    assert caught.value.line == 3
    assert len(str(caught.value)) < 300
