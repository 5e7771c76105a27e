"""`pipeplan simulate` from the command line: what it prints and writes, and what it refuses."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from pipeplan.cli.app import app
from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile, Provenance, plan_to_dict
from pipeplan.core.cost import evaluate
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.jsontext import dump_json
from pipeplan.core.plan import joint_plan
from pipeplan.core.problem import Problem


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    """Two stages on three GPUs, whose transfers the in-flight limit cannot hide."""
    layers = [Layer("a", 2.0, 4.0, 2_000_000, 1000), Layer("<b>&", 1.0, 2.0, 0, 500)]
    graph = LayerGraph.build(layers, [("a", "<b>&")], name="tiny <net>")
    cluster = Cluster.of((3,), (1e9,))
    problem = Problem(graph, cluster)
    plan = joint_plan(cluster, (((0,), 2), ((1,), 1)))
    file = PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN"))
    path = tmp_path / "plan.json"
    path.write_text(dump_json(plan_to_dict(file)))
    return path


def run(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["simulate", *map(str, args)])
    return result.exit_code, result.output


def test_it_prints_period_bubbles_and_memory(plan_path: Path) -> None:
    code, out = run(plan_path)
    assert code == 0
    assert "tiny <net>" in out
    assert "Steady period 3." in out
    assert "bubble" in out
    assert "port of GPU 2, in" in out


def test_json_alone_and_the_same_every_time(plan_path: Path) -> None:
    code, out = run(plan_path, "--json", "--jitter", "0.2", "--seed", "3")
    assert code == 0
    data = json.loads(out)
    assert data["predicted_period_ms"] == pytest.approx(3.0, rel=1e-3)
    assert data["period_ms"] > data["predicted_period_ms"]
    assert run(plan_path, "--json", "--jitter", "0.2", "--seed", "3") == (code, out)


def test_trace_and_timeline_are_well_formed(plan_path: Path, tmp_path: Path) -> None:
    trace, svg = tmp_path / "trace.json", tmp_path / "timeline.svg"
    code, _ = run(plan_path, "--trace", trace, "--svg", svg)
    assert code == 0
    events = json.loads(trace.read_text())["traceEvents"]
    spans = [x for x in events if x["ph"] == "X"]
    assert {x["cat"] for x in spans} == {"forward", "backward", "all-reduce", "transfer"}
    assert all(x["dur"] >= 0 and x["ts"] >= 0 for x in spans)
    assert any(x["ph"] == "C" and x["args"]["bytes"] > 0 for x in events)
    root = ElementTree.fromstring(svg.read_text())
    titles = [x.text for x in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "forward 0: 0 to 2 ms" in titles
    assert "tiny <net>" in "".join(root.itertext())


def test_nothing_is_overwritten_without_force(plan_path: Path, tmp_path: Path) -> None:
    svg = tmp_path / "timeline.svg"
    svg.write_text("mine")
    code, out = run(plan_path, "--svg", svg)
    assert code == 2
    assert "--force" in out
    assert svg.read_text() == "mine"
    assert run(plan_path, "--svg", svg, "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--straggler", "fast"], "RANK:FACTOR"),
        (["--straggler", "7:2"], "rank 7 holds no stage"),
        (["--jitter", "9"], "jitter is 9"),
        (["--micro-batches", "0"], "0 micro-batches"),
        (["--trace", "/nowhere/trace.json"], "no folder"),
    ],
)
def test_bad_input_is_one_message(plan_path: Path, arguments: list[str], words: str) -> None:
    code, out = run(plan_path, *arguments)
    assert code == 2
    assert words in out
    assert "Traceback" not in out
