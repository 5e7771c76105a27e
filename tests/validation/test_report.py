"""The report: what it says, that hostile text stays text, and how it behaves in a browser."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeplan.core.bottleneck import level_limits
from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.cluster_toml import parse_cluster
from pipeplan.core.codec import PlanFile, Provenance, plan_from_dict
from pipeplan.core.cost import evaluate
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.plan import NestedStage, Plan, joint_plan, nested_plan
from pipeplan.core.problem import Problem
from pipeplan.models.formats import read_profile
from pipeplan.validation.report.data import ReportText, page_data
from pipeplan.validation.report.dot import dot
from pipeplan.validation.report.layout import STEP_X, STEP_Y, lay_out
from pipeplan.validation.report.page import embedded_json, render_page
from pipeplan.validation.report.reproduce import cluster_toml, command
from pipeplan.validation.report.why import alternatives, why
from pipeplan.validation.simulation import SimulationOptions, simulate
from pipeplan.validation.simulation.verdict import verdict

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u2028<!--"


def filed(problem: Problem, plan: Plan) -> PlanFile:
    return PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN", version="0.1.0"))


def page_of(file: PlanFile, micro_batches: int | None = None) -> str:
    result = simulate(file.problem, file.plan, SimulationOptions(micro_batches=micro_batches))
    text = ReportText(
        cluster="the cluster",
        question="the question",
        headline="the answer",
        proof="nothing is proven",
        simulation=tuple(verdict(result)),
        caveats=("Two figures.",),
    )
    return render_page(page_data(file, result, text))


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.fixture(scope="module")
def vgg16() -> Problem:
    graph = read_profile("vgg16").graph
    return Problem(graph, Cluster.of((8, 2), (4 * 2**30, 2 * 2**30), memory_bytes=80 * 10**9))


@pytest.fixture(scope="module")
def joint(vgg16: Problem) -> PlanFile:
    n = len(vgg16.graph)
    layers = tuple(range(n * 5 // 8)), tuple(range(n * 5 // 8, n))
    return filed(vgg16, joint_plan(vgg16.cluster, ((layers[0], 15), (layers[1], 1))))


@pytest.fixture(scope="module")
def nested(vgg16: Problem) -> PlanFile:
    """PipeDream's answer: copies of a pipeline with 7 and 1 GPUs on both servers."""
    n = len(vgg16.graph)
    inner = (NestedStage(tuple(range(24)), 7), NestedStage(tuple(range(24, n)), 1))
    plan = nested_plan(vgg16.cluster, (NestedStage(tuple(range(n)), 2, inner),))
    return filed(replace(vgg16, scope="nested", cost_model="pipedream"), plan)


def diamond(name: str = "d", text: str = "") -> LayerGraph:
    layers = [Layer(x, 1.0, 2.0, 1000, 10, description=text) for x in ("a", "b", "c", "e")]
    return LayerGraph.build(layers, [("a", "b"), ("a", "c"), ("b", "e"), ("c", "e")], name=name)


# ---- what it says --------------------------------------------------------------------


def test_the_page_holds_the_whole_answer(joint: PlanFile) -> None:
    data = data_of(page_of(joint))
    assert [x["ranks"] for x in data["stages"]] == ["0-14", "15"]
    assert [x["replicas"] for x in data["stages"]] == [15, 1]
    assert data["servers"]["stage_of_rank"] == [0] * 15 + [1]
    assert data["loads"][0]["compute_ms"] > 0
    for screen in ("wide", "narrow"):
        assert len(data["graph"][screen]["nodes"]) == len(joint.problem.graph)
    assert data["graph"]["wide"]["cuts"][0][4] == joint.evaluation.topology.cut_bytes[0]
    assert {tuple(x["replicas"]) for x in data["alternatives"]} == {(14, 2)}
    again = plan_from_dict(data["plan"])
    assert again.plan.stages == joint.plan.stages


def test_same_plan_same_bytes(joint: PlanFile) -> None:
    assert page_of(joint) == page_of(joint)


def test_nothing_is_fetched(joint: PlanFile) -> None:
    page = page_of(joint)
    assert "default-src &#x27;none&#x27;" in page
    markup = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.DOTALL)
    urls = set(re.findall(r"https?://[^\s\"'<)]+", markup))
    assert urls == {"http://www.w3.org/2000/svg"}  # a namespace, not an address
    assert not re.search(r"\b(src|href)\s*=\s*[\"']?(?!#)[a-z]+:", markup)


def test_nested_replication_is_explained_level_by_level(nested: PlanFile) -> None:
    # The inner split moved both ways, and a server given up.
    moved = alternatives(nested.problem, nested.plan)
    assert (12, 4) in {x.replicas for x in moved}
    lines = why(nested.problem, nested.plan, moved)
    assert "Level 2: stages 0-1 on 2 servers." in lines
    assert (
        "Level 1, inside each server of stages 0-1: stage 0 on 7 GPUs, stage 1 on 1 GPU." in lines
    )
    assert "Stage 0: 2 x 7 = 14 ranks." in lines
    assert "Stage 1: 2 x 1 = 2 ranks." in lines
    assert (
        "The 2 copies are identical, so these counts change by 2 at a time: 15-1, for one, is a "
        "plan of scope joint alone."
    ) in lines


def test_levels_that_differ_are_named_by_their_stages(vgg16: Problem) -> None:
    parts = [tuple(range(a, b)) for a, b in ((0, 14), (14, 25), (25, 40))]
    halves = (
        NestedStage(parts[0], 1, (NestedStage(parts[0], 8),)),
        NestedStage(
            (*parts[1], *parts[2]), 1, (NestedStage(parts[1], 7), NestedStage(parts[2], 1))
        ),
    )
    plan = nested_plan(vgg16.cluster, halves)
    problem = Problem(vgg16.graph, vgg16.cluster, scope="nested", cost_model="levelwise")
    lines = why(problem, plan, ())
    assert "Level 2: stage 0 on 1 server, stages 1-2 on 1 server." in lines
    assert "Level 1, inside each server of stage 0: stage 0 on 8 GPUs." in lines
    assert (
        "Level 1, inside each server of stages 1-2: stage 1 on 7 GPUs, stage 2 on 1 GPU." in lines
    )
    assert not any("identical" in line for line in lines)


def told(data: dict[str, Any]) -> str:
    """All sentences of the page."""
    limits = [line for x in data["limits"] for line in x["lines"]]
    return " ".join([*data["why"], *limits, *(x["limit"] for x in data["alternatives"])])


def test_the_nested_page_says_which_ranks_why_and_what_limits(nested: PlanFile) -> None:
    data = data_of(page_of(nested))
    assert [x["ranks"] for x in data["stages"]] == ["0-6, 8-14", "7, 15"]
    graph, stages = nested.problem.graph, nested.plan.stages
    text = told(data)
    for stage in stages:
        share = 100 * graph.compute_ms(stage.layers) / graph.total_compute_ms
        held = 100 * graph.parameter_bytes(stage.layers) / graph.total_parameter_bytes
        assert f"{share:.1f} % of the compute" in text
        assert f"{held:.1f} % of the parameters" in text
    assert "2 x 7 = 14 ranks" in text
    # Both prices, and what is slowest by each; that they disagree on data parallelism is said.
    own, real = data["limits"]
    assert (own["model"], own["period_ms"]) == ("pipedream", nested.evaluation.period_ms)
    assert own["lines"] == level_limits(nested.problem, nested.plan)
    assert real["model"] == "topology"
    assert real["period_ms"] == nested.evaluation.topology.period_ms
    assert real["lines"][0].startswith("Each of the 2 GPUs of stage 1:")
    assert data["nested"]["data_parallel_ms"] < data["nested"]["objective_ms"]
    (other,) = [x for x in data["alternatives"] if x["replicas"] == [12, 4]]
    assert other["objective_ms"] > data["objective_ms"]
    assert "stage 1 takes" in other["limit"]


def test_the_joint_page_says_which_ranks_why_and_what_limits(joint: PlanFile) -> None:
    data = data_of(page_of(joint))
    text = told(data)
    assert [x["ranks"] for x in data["stages"]] == ["0-14", "15"]
    assert data["nested"] is None
    (limit,) = data["limits"]
    assert limit["lines"][0].startswith("Each of the 15 GPUs of stage 0:")
    # One GPU moved: the all-reduce of the second stage's parameters is what 14-2 would pay.
    (other,) = data["alternatives"]
    assert other["replicas"] == [14, 2]
    assert "Limited by each of the 2 GPUs of stage 1:" in other["limit"]
    assert "of all-reduce" in other["limit"]
    assert f"14-2, takes {other['objective_ms']:.3f} ms" in text
    assert "With all layers on all 16 GPUs, data parallelism, it is" in text


def test_of_many_stages_only_the_extremes_get_a_sentence() -> None:
    layers = [Layer(f"n{i}", 1.0 + i, 2.0, 1000, 10) for i in range(12)]
    graph = LayerGraph.build(layers, [(f"n{i}", f"n{i + 1}") for i in range(11)])
    problem = Problem(graph, Cluster.of((8, 2), (1e9, 1e9)))
    plan = joint_plan(problem.cluster, tuple(((i,), 2 if i == 0 else 1) for i in range(12)))
    lines = why(problem, plan, alternatives(problem, plan))
    assert lines[0] == (
        "Of 12 stages, stage 11 has the most compute for each of its GPUs and stage 0 the least."
    )
    assert [line.split(" has ")[0] for line in lines[1:3]] == ["Stage 0", "Stage 11"]
    assert not any("2-1-1-1" in line for line in lines)


def test_alternatives_are_priced_and_those_that_do_not_fit_are_marked() -> None:
    layers = [Layer("a", 2, 4, 100, 0), Layer("b", 1, 2, 100, 0)]
    graph = LayerGraph.build(layers, [("a", "b")])
    # Stage a on one GPU holds 4 micro-batches of 100 bytes, on two or three no more than 200.
    problem = Problem(graph, Cluster.of((4,), (1e12,), memory_bytes=300))
    plan = joint_plan(problem.cluster, (((0,), 3), ((1,), 1)))
    found = alternatives(problem, plan)
    assert [(x.replicas, x.fits) for x in found] == [((2, 2), True)]
    assert found[0].objective_ms == pytest.approx(3.0)
    tight = joint_plan(problem.cluster, (((0,), 2), ((1,), 2)))
    assert {(x.replicas, x.fits) for x in alternatives(problem, tight)} == {
        ((1, 3), False),
        ((3, 1), True),
    }


def test_the_cluster_file_reads_back_as_it_was() -> None:
    cluster = Cluster(
        (Level(8, 123456789.5, 0.005, 'NV"Link\\'), Level(3, 2e9)), 16_000_000_000, "half"
    )
    assert parse_cluster(cluster_toml(cluster), "cluster.toml") == cluster


def test_the_command_names_every_option_of_the_question(vgg16: Problem) -> None:
    problem = Problem(
        vgg16.graph, vgg16.cluster, schedule="1f1b", micro_batches=32, recompute=True,
        overlap_sync=True, weight_copies=3,
    )  # fmt: skip
    plan = joint_plan(problem.cluster, ((tuple(range(len(problem.graph))), 1),))
    text = command(filed(problem, plan))
    for part in ("--micro-batches 32", "--recompute", "--overlap-sync", "--weight-copies 3"):
        assert part in text


# ---- layout --------------------------------------------------------------------------


def test_no_two_nodes_overlap_and_stages_keep_apart() -> None:
    graph = diamond()
    problem = Problem(graph, Cluster.of((2,), (1e9,)))
    plan = joint_plan(problem.cluster, (((0, 1, 2), 1), ((3,), 1)))
    layout = lay_out(graph, plan)
    assert len(set(layout.nodes)) == 4
    (ax, ay), (bx, by), (cx, cy), _ = layout.nodes
    assert bx == cx == ax + STEP_X
    assert abs(by - cy) == STEP_Y
    assert by + cy == 2 * ay
    for v, (x, y) in enumerate(layout.nodes):
        stage = plan.stage_of_layer[v]
        assert any(
            band.stage == stage
            and band.x <= x <= band.x + band.width
            and band.y <= y <= band.y + band.height
            for band in layout.bands
        )
    assert [mark.after_stage for mark in layout.cuts] == [0]


def chain_of(count: int) -> tuple[LayerGraph, Plan]:
    layers = [Layer(f"layer{i}", 1.0, 2.0, 1000, 10) for i in range(count)]
    edges = [(f"layer{i}", f"layer{i + 1}") for i in range(count - 1)]
    graph = LayerGraph.build(layers, edges, name="long")
    half = tuple(range(count // 2)), tuple(range(count // 2, count))
    return graph, joint_plan(Cluster.of((2,), (1e9,)), ((half[0], 1), (half[1], 1)))


def test_a_long_chain_is_wrapped_like_text() -> None:
    graph, plan = chain_of(400)
    layout = lay_out(graph, plan)
    assert len(set(layout.nodes)) == 400
    assert 1.5 < layout.width / layout.height < 3.5
    assert sum(band.width for band in layout.bands) == 400 * STEP_X


# ---- hostile text --------------------------------------------------------------------


def test_embedded_json_cannot_end_its_script() -> None:
    value = {HOSTILE: [HOSTILE, "\ud800", "&amp;"]}
    text = embedded_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    text.encode()
    assert json.loads(text) == value


def test_dot_text_cannot_leave_its_quotes() -> None:
    graph = diamond('x" -> {evil}', text='"; evil [label="\\')
    problem = Problem(graph, Cluster.of((2,), (1e9,)))
    plan = joint_plan(problem.cluster, (((0, 1, 2), 1), ((3,), 1)))
    text = dot(filed(problem, plan))
    # With every quoted string removed, no text of the profile is left.
    bare = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
    assert "evil" not in bare
    assert bare.count("->") == 4
    assert "style=dashed" in text


# ---- in a browser --------------------------------------------------------------------


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where pictures go: PIPEPLAN_SCREENSHOTS keeps them for a person to look at."""
    kept = os.environ.get("PIPEPLAN_SCREENSHOTS")
    folder = Path(kept) if kept else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def opened(browser: Any, page: str, tmp_path: Path, **view: Any) -> None:
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    browser.view(view.pop("width", 1400), view.pop("height", 900), **view)
    browser.open(path)
    assert browser.run("return document.documentElement.dataset.ready") == "true"


SECTIONS = {
    "answer",
    "stages",
    "servers",
    "limits",
    "why",
    "memory",
    "graph",
    "timeline",
    "baselines",
    "sensitivity",
    "reproduce",
}


def test_every_part_is_shown_and_the_console_is_silent(
    browser: Any, joint: PlanFile, tmp_path: Path, shots: Path
) -> None:
    opened(browser, page_of(joint), tmp_path)
    tall = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('main section')]"
        ".map(s => [s.id, s.getBoundingClientRect().height]))"
    )
    assert set(tall) == SECTIONS
    assert all(height > 60 for height in tall.values())
    words = browser.run("return document.body.innerText")
    for wanted in ("0-14", "the answer", "GPUs of stage 0", "Two figures.", "14-2", "vgg16"):
        assert wanted in words
    shown = " ".join(words.split())
    for wanted in ("Each of the 15 GPUs of stage 0:", "Limited by each of the 2 GPUs of stage 1:"):
        assert wanted in shown
    painted = (
        "const c=document.getElementById('%s');"
        "const d=c.getContext('2d').getImageData(0,0,c.width,c.height).data;"
        "return new Set(new Uint32Array(d.buffer)).size"
    )
    assert browser.run(painted % "graph-canvas") > 10
    assert browser.run(painted % "timeline-canvas") > 10
    assert len(browser.screenshot(shots / "desktop.png")) > 10_000
    assert browser.complaints() == []


@pytest.mark.parametrize("phone", [False, True])
def test_the_nested_page_answers_without_anything_else(
    browser: Any, nested: PlanFile, tmp_path: Path, shots: Path, phone: bool
) -> None:
    screen = {"width": 390, "height": 844, "phone": True} if phone else {}
    opened(browser, page_of(nested), tmp_path, **screen)
    browser.screenshot(shots / f"nested-{'phone' if phone else 'desktop'}.png")
    assert browser.run("return document.documentElement.scrollWidth") <= (390 if phone else 1400)
    shown = " ".join(browser.run("return document.body.innerText").split())
    for wanted in (
        "ranks 0-6, 8-14",  # the ribbon
        "2 x 7 = 14 ranks",
        "15-1, for one, is a plan of scope joint alone",
        "By pipedream:",
        "By topology:",
        "Each of the 2 GPUs of stage 1:",
    ):
        assert wanted in shown
    # On a phone a stage is a card, whose figures carry the names of their columns.
    labels = browser.run(
        "return [...document.querySelectorAll('#stage-table tbody tr:first-child td')]"
        ".map(x => getComputedStyle(x, '::before').content)"
    )
    assert ('"Ranks"' in labels) is phone
    # No text is wider than the box of its stage in the ribbon.
    assert browser.run(
        "return [...document.querySelectorAll('#ribbon div')]"
        ".every(x => x.scrollWidth <= x.clientWidth)"
    )
    browser.run("document.getElementById('words').open = true")
    assert "all-reduce" in browser.run("return document.getElementById('words').innerText")
    assert browser.complaints() == []


def test_a_plan_of_many_stages_stays_readable(browser: Any, tmp_path: Path, shots: Path) -> None:
    layers = [Layer(f"n{i}", 1.0 + i % 3, 2.0, 1000, 10) for i in range(64)]
    graph = LayerGraph.build(layers, [(f"n{i}", f"n{i + 1}") for i in range(63)], name="deep")
    problem = Problem(graph, Cluster.of((8, 16), (1e9, 1e9)))
    plan = joint_plan(problem.cluster, tuple(((i,), 1 + i % 3) for i in range(64)))
    page = page_of(filed(problem, plan), micro_batches=70)
    for name, screen in (("desktop", {}), ("phone", {"width": 390, "height": 844, "phone": True})):
        opened(browser, page, tmp_path, **screen)
        browser.screenshot(shots / f"many-{name}.png")
        assert browser.run(
            "return [...document.querySelectorAll('#ribbon div')]"
            ".every(x => x.scrollWidth <= x.clientWidth)"
        )
        # All 64 rows are there, in a box that scrolls; the reasons do not list them all.
        assert browser.run("return document.querySelectorAll('#stage-table tbody tr').length") == 64
        assert browser.run("return document.querySelectorAll('.scroll.more').length") >= 3
        assert browser.run("return document.querySelectorAll('#why-list li').length") < 8
        words = browser.run("return document.body.innerText")
        assert "1 layer (0)" in words
        assert not re.search(r"\b1 (?:layers|ranks|workers|stages)\b", words)
        assert browser.complaints() == []


def test_paper_is_light_also_from_a_dark_screen(
    browser: Any, joint: PlanFile, tmp_path: Path
) -> None:
    opened(browser, page_of(joint), tmp_path, dark=True)
    corner = (
        "return [...document.getElementById('graph-canvas').getContext('2d')"
        ".getImageData(2, 2, 1, 1).data]"
    )
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.cdp("Emulation.setEmulatedMedia", media="print", features=[dark])
    # The browser tells the page with the next frame.
    browser.run("return new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
    assert browser.run(corner)[:3] == [255, 255, 255]
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)"
    )


def test_it_zooms_searches_and_explains_under_the_mouse(
    browser: Any, joint: PlanFile, tmp_path: Path
) -> None:
    opened(browser, page_of(joint), tmp_path)
    before = browser.run("return pipeplanViews.graph.k")
    browser.click('[data-zoom="graph"][data-by="in"]')
    assert browser.run("return pipeplanViews.graph.k") == pytest.approx(before * 1.5)
    browser.click('[data-zoom="graph"][data-by="fit"]')
    assert browser.run("return pipeplanViews.graph.k") == pytest.approx(before)
    layer = joint.problem.graph.layers[3]
    browser.keys("#search", layer.id)
    assert browser.run("return document.getElementById('found').textContent")[0] != "0"
    browser.keys("#search", "\ue007")  # Enter
    status = browser.run("return document.getElementById('graph-status').textContent")
    assert "forward" in status
    assert browser.run("return pipeplanViews.graph.k") >= 1
    # The chosen layer is in the middle of the canvas now.
    middle = browser.run(
        "const r=document.getElementById('graph-canvas').getBoundingClientRect();"
        "return [r.left+r.width/2, r.top+r.height/2]"
    )
    browser.hover(*middle)
    tip = browser.run(
        "const t=document.getElementById('graph-tip');return t.hidden ? '' : t.innerText"
    )
    assert tip.splitlines()[0] in status
    browser.keys("#graph-canvas", "+++\ue014n0")
    assert browser.run("return pipeplanViews.graph.k") == pytest.approx(before)
    assert browser.complaints() == []


def test_no_script_of_a_profile_runs(browser: Any, tmp_path: Path) -> None:
    clean = "".join(x for x in HOSTILE if x.isprintable())
    layers = [
        Layer(clean, 1.0, 2.0, 1000, 10, description=HOSTILE),
        Layer("b", 1.0, 2.0, 10, 10, description="javascript:alert(1)"),
    ]
    metadata = {HOSTILE: HOSTILE, "device": {"nested": HOSTILE}}
    graph = LayerGraph.build(layers, [(clean, "b")], name=HOSTILE, metadata=metadata)
    problem = Problem(graph, Cluster.of((2,), (1e9,)))
    plan = joint_plan(problem.cluster, (((0,), 1), ((1,), 1)))
    opened(browser, page_of(filed(problem, plan)), tmp_path)
    browser.run("document.getElementById('layer-details').open = true")
    browser.keys("#search", "script")
    browser.keys("#search", "\ue007")
    assert browser.run("return window.hacked === undefined")
    assert browser.run("return document.images.length") == 0
    assert browser.run("return document.scripts.length") == 2
    assert "<img src=x" in browser.run("return document.getElementById('layer-table').innerText")
    assert browser.complaints() == []


def test_phone_and_dark(browser: Any, joint: PlanFile, tmp_path: Path, shots: Path) -> None:
    page = page_of(joint)
    opened(browser, page, tmp_path, width=390, height=844, phone=True)
    wide = browser.run("return document.documentElement.scrollWidth")
    assert wide <= 390  # nothing sticks out: tables scroll inside their own box
    browser.screenshot(shots / "phone.png")
    opened(browser, page, tmp_path, dark=True)
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(14, 17, 22)"
    corner = browser.run(
        "return [...document.getElementById('graph-canvas').getContext('2d')"
        ".getImageData(2, 2, 1, 1).data]"
    )
    assert corner[:3] == [22, 27, 34]
    browser.screenshot(shots / "dark.png")
    assert browser.complaints() == []


def test_two_thousand_layers_stay_fluid_enough_to_be_drawn(browser: Any, tmp_path: Path) -> None:
    graph, plan = chain_of(2000)
    problem = Problem(graph, Cluster.of((2,), (1e9,)))
    opened(browser, page_of(filed(problem, plan), micro_batches=32), tmp_path)
    # Zoomed in, only what is in view is drawn: count the labels that are written.
    drawn = browser.run(
        "const v=pipeplanViews.graph; v.zoom(50); let n=0;"
        "const c=new Proxy(v.ctx, {get: (t, k) => k === 'fillText'"
        " ? (...a) => { n++; return t.fillText(...a); }"
        " : typeof t[k] === 'function' ? t[k].bind(t) : t[k],"
        " set: (t, k, x) => { t[k] = x; return true; }});"
        "v.draw(c, v); return n;"
    )
    assert 0 < drawn < 200
    assert browser.complaints() == []
