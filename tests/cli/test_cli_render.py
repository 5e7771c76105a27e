"""What is printed: whole at any width, every rank present, nobody's text interpreted."""

import re
import shlex
from itertools import pairwise

import pytest
from rich.cells import cell_len

from pipeplan.cli.render.commands import wrapped
from pipeplan.cli.render.flow import flow_lines
from pipeplan.cli.render.plan import plan_page
from pipeplan.cli.render.servers import Servers
from pipeplan.cli.render.terminal import console, plain
from pipeplan.cli.render.words import milliseconds, percent, ranges, times
from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile, Provenance
from pipeplan.core.cost import evaluate
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.plan import NestedStage, Plan, Stage, joint_plan, nested_plan
from pipeplan.core.problem import Problem

WIDTHS = (40, 60, 80, 100, 200)


def graph(name: str = "net", prefix: str = "layer") -> LayerGraph:
    """Twelve layers in a row."""
    ids = [f"{prefix}{i}" for i in range(12)]
    layers = [Layer(x, 5.0, 10.0, 3_000_000, parameter_bytes=4_000_000) for x in ids]
    return LayerGraph.build(layers, pairwise(ids), name=name)


def file(
    cluster: Cluster,
    stages: tuple[tuple[int, int], ...],
    copies: int = 1,
    origin: Provenance | None = None,
    net: LayerGraph | None = None,
) -> PlanFile:
    """A plan of (layers, replicas) pairs in order."""
    problem = Problem(net or graph(), cluster)
    parts, start = [], 0
    for count, replicas in stages:
        parts.append((tuple(range(start, start + count)), replicas))
        start += count
    plan = joint_plan(cluster, tuple(parts), copies)
    price = evaluate(problem, plan)
    return PlanFile(
        problem, plan, price, origin or Provenance("OPTIMAL", "dp", "0", price.objective_ms)
    )


def page(plan: PlanFile, width: int) -> str:
    """The whole page as text."""
    out = console(width=width)
    with out.capture() as captured:
        for part in plan_page(plan, ["pipeplan generate plan.json -o net-pipeline"]):
            out.print(part, crop=False)
    return captured.get()


def memory(cluster: Cluster) -> Cluster:
    return Cluster(cluster.levels, 16 * 10**9)


PLANS = {
    "2x8": file(Cluster.of([8, 2], [4e9, 2e9]), ((9, 14), (3, 2))),
    "2x8 with memory": file(memory(Cluster.of([8, 2], [4e9, 2e9])), ((9, 7), (3, 1)), 2),
    "16x8 in copies": file(Cluster.of([8, 16], [4e9, 2e9]), ((6, 5), (4, 1), (2, 1)), 16),
    "16x8 as one": file(Cluster.of([8, 16], [4e9, 2e9]), tuple((1, 10) for _ in range(12))),
    "three levels": file(Cluster.of([4, 2, 3], [4e9, 2e9, 1e9]), ((6, 20), (6, 4))),
    "64 servers": file(Cluster.of([8, 64], [4e9, 2e9]), ((6, 400), (6, 100))),
    "one device": file(Cluster.of([1], [1e9]), ((12, 1),)),
    "long names": file(
        Cluster.of([8, 2], [4e9, 2e9]), ((9, 14), (3, 2)), net=graph(prefix="model.encoder." * 4)
    ),
    "one large server": file(Cluster.of([600], [4e9]), ((6, 400), (6, 100))),
    "large servers": file(Cluster.of([64, 2], [4e9, 2e9]), ((6, 100), (6, 28))),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PLANS)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    for line in page(PLANS[name], width).splitlines():
        assert cell_len(line.rstrip()) <= width, line


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PLANS)
def test_every_rank_is_drawn_once_with_its_stage(name: str, width: int) -> None:
    plan = PLANS[name]
    cluster = plan.problem.cluster
    out = console(width=width)
    with out.capture() as captured:
        out.print(Servers(cluster, plan.plan))
    text = captured.get()
    found: dict[int, str] = {}
    if cluster.servers > 32 or cluster.devices > 512:
        for stage, listed in re.findall(r"(stage \d+|idle) on ([0-9, \n-]+?)(?:;|$)", text, re.M):
            for piece in listed.replace("\n", " ").split(","):
                first, _, last = piece.strip().partition("-")
                for rank in range(int(first), int(last or first) + 1):
                    assert rank not in found
                    found[rank] = stage.removeprefix("stage ").replace("idle", "-")
    else:
        lines = [line for line in text.splitlines() if "rank " in line or "stage" in line]
        for above, below in zip(lines[::2], lines[1::2], strict=True):
            ranks, stages = above.partition("rank ")[2].split(), below.split("stage")[1].split()
            for rank, stage in zip(ranks, stages, strict=True):
                assert int(rank) not in found
                found[int(rank)] = stage
    stage_of = plan.plan.stage_of_rank
    assert found == {rank: str(stage_of.get(rank, "-")) for rank in range(cluster.devices)}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PLANS)
def test_rank_ranges_are_never_broken_inside(name: str, width: int) -> None:
    """Every piece of the ranks of every stage stands in one line."""
    text = page(PLANS[name], width)
    for stage in PLANS[name].plan.stages:
        for piece in ranges(stage.ranks):
            assert re.search(rf"(?<![\d-]){piece}(?![\d-])", text), piece


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_the_page_answers_every_question(width: int) -> None:
    text = " ".join(page(PLANS["2x8 with memory"], width).split())
    for words in (
        "2 stages on all 16 GPUs: stage 0 x14 and stage 1 x2.",
        "Proven optimal (dp): no joint plan is below",
        "0-8 (9)",
        "layer0 to",
        "Which rank runs which stage",
        "What feeds what",
        "none of it leaves a server. Ranks 0-6 -> 7; 8-14 -> 15",
        "What limits it",
        "GPUs twice as fast",
        "one GPU: 180.000 ms; the plan is",
        "data parallel on 16 GPUs:",
        "16 GB",
        "pipeplan generate",
    ):
        assert words in text, words


def test_idle_ranks_are_named() -> None:
    text = page(PLANS["16x8 in copies"], 100)
    assert "112 of 128 GPUs (idle: ranks 7, 15," in " ".join(text.split())


def test_the_bottleneck_s_time_is_the_plan_s() -> None:
    for plan in PLANS.values():
        text = " ".join(page(plan, 100).split())
        assert f"{plan.evaluation.objective_ms:.3f} ms a micro-batch" in text


HOSTILE = "[bold red]x[/] \x1b[31m:smile: [link=http://x]\u202e\r\n\x07"


def test_nobody_s_text_is_interpreted() -> None:
    net = graph(name=HOSTILE, prefix="[bold]n[/bold]:smile:")
    text = page(file(Cluster.of([2], [1e9]), ((12, 2),), net=net), 200)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "[bold red]x[/]" in text
    assert "[bold]n[/bold]:smile:0 to [bold]n[/bold]:smile:11" in text
    assert plain("a\x1bb\nc").plain == "a?b?c"
    assert plain("x" * 50, 10).plain == "x" * 7 + "..."


def test_status_is_said_in_words() -> None:
    cluster = Cluster.of([2], [1e9])
    for origin, words in (
        (Provenance("GIVEN"), "brought, not searched for"),
        (Provenance("FEASIBLE", "cpsat", "0", 45.0, "time"), "no joint plan is below 45.000 ms"),
        (Provenance("FEASIBLE", "cpsat", "0", None, "interrupt"), "Ctrl-C ended the search"),
        (Provenance("FEASIBLE", "cpsat", "0", 89.0, "gap"), "the gap asked for"),
    ):
        text = " ".join(page(file(cluster, ((12, 2),), origin=origin), 100).split())
        assert words in text


def test_a_nested_plan_has_both_figures() -> None:
    cluster = Cluster.of([2, 2], [4e9, 1e9])
    problem = Problem(graph(), cluster, scope="nested", cost_model="levelwise")
    inner = (NestedStage(tuple(range(6)), 1), NestedStage(tuple(range(6, 12)), 1))
    plan = nested_plan(cluster, (NestedStage(tuple(range(12)), 2, inner),))
    price = evaluate(problem, plan)
    origin = Provenance("OPTIMAL", "dp", "0", price.objective_ms)
    text = " ".join(page(PlanFile(problem, plan, price, origin), 100).split())
    own, real = price.period_ms, price.topology.period_ms
    assert own != real
    assert f"Two figures: {own:.3f} ms by levelwise, {real:.3f} ms by topology" in text
    assert "data parallel on 4 GPUs, by levelwise:" in text
    assert "data parallel on 4 GPUs, by topology:" in text


def test_what_feeds_what() -> None:
    cluster = Cluster.of([2, 2], [4e9, 1e9])
    problem = Problem(graph(), cluster)

    def lines(*stages: tuple[tuple[int, ...], tuple[int, ...]]) -> list[str]:
        plan = Plan(tuple(Stage(*stage) for stage in stages))
        return flow_lines(PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN")))

    first, second = tuple(range(6)), tuple(range(6, 12))
    assert lines((tuple(range(12)), (0, 1, 2, 3))) == []
    assert lines((first, (0, 1)), (second, (2, 3))) == [
        "stage 0 -> 1: 3 MB forward and as much back per micro-batch; all of it crosses servers. "
        "Ranks 0 -> 2; 1 -> 3"
    ]
    assert lines((first, (0, 2)), (second, (1, 3)))[0].endswith(
        "none of it leaves a server. Ranks 0 -> 1; 2 -> 3"
    )
    assert "66.7 % of it crosses servers" in lines((first, (0, 1, 2)), (second, (3,)))[0]


def test_figures_in_words() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == ["0-2", "5", "7-8"]
    assert ranges([]) == []
    assert [percent(x) for x in (0, 1, 0.125, 0.0001, 4e-7, 0.99999, 1.5)] == [
        "0 %",
        "100 %",
        "12.5 %",
        "0.010 %",
        "under 0.001 %",
        "99.999 %",
        "150.0 %",
    ]
    assert [milliseconds(x) for x in (0, 0.00123, 44.66776, 123456.7)] == [
        "0",
        "0.0012",
        "44.668",
        "123457",
    ]
    assert times(10, 4) == "2.50 x"
    assert times(10, 0) == "any number of times"


@pytest.mark.parametrize("width", [26, 40, 80, 200])
def test_commands_stay_copyable(width: int) -> None:
    command = "pipeplan solve 'my profile.txt' -n 8 2 -b 4GiB/s 2GiB/s --memory 16GB -o plan.json"
    lines = wrapped(command, width)
    joined = "\n".join(lines)
    assert shlex.split(joined.replace("\\\n", " ")) == shlex.split(command)
    assert all(len(line) <= width for line in lines)
    assert all(line.endswith("\\") for line in lines[:-1])
