"""Clusters: numbering, and what they refuse."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeplan.core.cluster import MAX_DEVICES, Cluster, Level
from pipeplan.core.errors import ClusterError


def test_devices_are_numbered_depth_first() -> None:
    cluster = Cluster.of([8, 2, 3], [3.0, 2.0, 1.0])
    assert cluster.group_sizes == (1, 8, 16, 48)
    assert (cluster.devices, cluster.servers, cluster.devices_per_server) == (48, 6, 8)
    assert [cluster.server_of(r) for r in (0, 7, 8, 47)] == [0, 0, 1, 5]
    assert cluster.port_name(1, 9) == "port of GPU 9"
    assert cluster.port_name(2, 1) == "network port of server 1"
    assert cluster.port_name(3, 2) == "level-3 port of group 2"


@given(data=st.data())
def test_groups_hold_whole_groups(data: st.DataObject, make: SimpleNamespace) -> None:
    cluster = data.draw(make.clusters(30))
    for level, tier in enumerate(cluster.levels, 1):
        assert cluster.group_sizes[level] == cluster.group_sizes[level - 1] * tier.children
    assert cluster.devices == math.prod(tier.children for tier in cluster.levels)
    assert cluster.servers * cluster.devices_per_server == cluster.devices


@pytest.mark.parametrize(
    "children", [0, -1, MAX_DEVICES + 1, 2.0, True, None, "8", pytest.param(10**5000, id="huge")]
)
def test_children_are_whole_and_bounded(children: Any) -> None:
    with pytest.raises(ClusterError, match="children"):
        Level(children, 1.0)


@pytest.mark.parametrize(
    "rate",
    [
        0,
        0.0,
        -1.0,
        math.nan,
        math.inf,
        1e-300,
        1e300,
        True,
        None,
        "1",
        pytest.param(10**400, id="large"),
        pytest.param(10**5000, id="huge"),
    ],
)
def test_bandwidths_are_finite_and_above_zero(rate: Any) -> None:
    with pytest.raises(ClusterError, match=r"a bandwidth is .* bytes/s"):
        Level(2, rate)


@pytest.mark.parametrize(
    "latency", [-1.0, math.nan, math.inf, 1e300, True, None, "1", pytest.param(10**400, id="large")]
)
def test_latencies_are_finite_and_not_negative(latency: Any) -> None:
    with pytest.raises(ClusterError, match=r"a latency is .* ms"):
        Level(2, 1.0, latency)


@pytest.mark.parametrize("memory", [0, -5, 1.5, 16e9, math.nan, True, "16GB", 2**62 + 1])
def test_memory_is_a_whole_number_of_bytes(memory: Any) -> None:
    with pytest.raises(ClusterError, match="the device memory is"):
        Cluster.of([2], [1.0], memory_bytes=memory)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[0m", pytest.param("x" * 201, id="long"), None, 3])
def test_names_are_short_and_printable(name: Any) -> None:
    with pytest.raises(ClusterError, match="a level's name") as caught:
        Level(2, 1.0, name=name)
    assert str(caught.value).isprintable()


def test_levels_and_bandwidths_go_together() -> None:
    with pytest.raises(ClusterError, match=r"2 levels \(8 2\) but 1 bandwidths"):
        Cluster.of([8, 2], [1.0])
    with pytest.raises(ClusterError, match="1 level "):
        Cluster.of([8], [1.0, 2.0])
    with pytest.raises(ClusterError, match="at least one level"):
        Cluster.of([], [])
    with pytest.raises(ClusterError, match="9 levels"):
        Cluster.of([1] * 9, [1.0] * 9)
    with pytest.raises(ClusterError, match="more than 65536 devices"):
        Cluster.of([1024, 128], [1.0, 1.0])
    with pytest.raises(ClusterError, match="duplex is 'simplex'"):
        Cluster.of([2], [1.0], duplex="simplex")  # type: ignore[arg-type]


def test_figures_are_one_kind_of_number() -> None:
    assert Level(2, 5, 0) == Level(2, 5.0, -0.0)
    assert isinstance(Level(2, 5, 0).bandwidth_bytes_per_s, float)
    assert math.copysign(1, Level(2, 5, -0.0).latency_ms) == 1
