"""What is run: networks that sleep for stated times, and small ones of the zoo, profiled here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

from pipeplan.core.cluster import Cluster
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import Plan, joint_plan
from pipeplan.core.problem import Constraints, Problem
from pipeplan.models.zoo import FACTORIES
from pipeplan.runtime.schedule import SyncSchedule
from pipeplan.solver.api import solve

__all__ = ["ZOO_SIZES", "Case", "sleeping_case", "sleeping_cases", "zoo_cases"]

_SCHEDULES: Final[tuple[SyncSchedule, ...]] = ("1f1b", "gpipe")
_SLEEP_BYTES_PER_S: Final = 1e12
"""The messages of a sleeping network are a few bytes: no bandwidth would tell."""
_LOOPBACK_BYTES_PER_S: Final = 1e9
"""About what gloo moves between two processes of a machine; the column of messages shows it."""

_SLEEPING: Final = (
    ("40/60,40/60", (1, 1)),
    ("40/60,40/60,40/60,40/60", (1, 1, 1, 1)),
    ("60/30,40/60", (1, 1)),
    ("40/60,40/60,40/60", (2, 1)),
    ("40/60,40/60,40/60,40/60", (3, 1)),
    ("40/60,40/60,40/60", (1, 2)),
    ("40/60,40/60", (2,)),
    ("40/60,40/60,40/60,40/60", (4,)),
)
"""FORWARD/BACKWARD ms of the layers, and the replicas of stages; a stage of r replicas has r of
the layers, so that all stages are equally busy but for the third line."""

ZOO_SIZES: Final[Mapping[str, Mapping[str, Any]]] = {
    "vgg16": {"batch": 2, "image": 64, "width": 16, "hidden": 256, "classes": 100},
    "resnet18": {"batch": 4, "image": 64, "width": 32, "classes": 100},
    # Tied weights would keep the two ends of the network together, and so all of it.
    "gpt": {
        "batch": 2,
        "length": 64,
        "vocabulary": 1000,
        "width": 128,
        "heads": 4,
        "layers": 4,
        "tied": False,
    },
    "seq2seq": {"batch": 8, "length": 16, "vocabulary": 1000, "width": 128, "layers": 2},
    "unet": {"batch": 2, "image": 64, "width": 8, "depth": 3},
}
"""Networks of the zoo with sizes at which a micro-batch takes tens of ms on one core."""


@dataclass(frozen=True, slots=True)
class Case:
    """A plan to run, under the synchronous schedule of its problem. `known` where the times of the
    profile are those that the layers keep, not a measurement."""

    name: str
    problem: Problem
    plan: Plan
    known: bool

    @property
    def replicas(self) -> tuple[int, ...]:
        """Of each stage."""
        return tuple(stage.replicas for stage in self.plan.stages)


def sleeping_case(
    times: str, replicas: Sequence[int], schedule: SyncSchedule, micro_batches: int
) -> Case:
    """Layers that sleep for these times (see `models.sleeping`), one for each replica."""
    from pipeplan.models.sleeping import sleeping_profile

    graph = sleeping_profile(times)
    cluster = Cluster.of([sum(replicas)], [_SLEEP_BYTES_PER_S])
    ends = [0, *accumulate(replicas)]
    plan = joint_plan(
        cluster,
        tuple((tuple(range(a, b)), b - a) for a, b in pairwise(ends)),
    )
    problem = Problem(graph, cluster, schedule=schedule, micro_batches=micro_batches)
    return Case(f"sleep {times}", problem, plan, known=True)


def sleeping_cases(micro_batches: int) -> Iterator[Case]:
    """Straight pipelines of 2 and 4 stages, replicated stages and pure data parallelism."""
    for times, replicas in _SLEEPING:
        for schedule in _SCHEDULES:
            yield sleeping_case(times, replicas, schedule, micro_batches)


def zoo_cases(names: Sequence[str], micro_batches: int) -> Iterator[Case]:
    """Each network whole on one rank and on two, and in the best two stages under each schedule.

    Profiled here and now, on one thread.
    """
    for name in names:
        graph = _profiled(name)
        everything = tuple(range(len(graph)))
        for ranks in (1, 2):
            cluster = Cluster.of([ranks], [_LOOPBACK_BYTES_PER_S])
            problem = Problem(graph, cluster, schedule="1f1b", micro_batches=micro_batches)
            yield Case(name, problem, joint_plan(cluster, ((everything, ranks),)), known=False)
        for schedule in _SCHEDULES:
            problem = Problem(
                graph,
                Cluster.of([2], [_LOOPBACK_BYTES_PER_S]),
                schedule=schedule,
                micro_batches=micro_batches,
                constraints=Constraints(straight=True),
            )
            yield Case(name, problem, solve(problem).require_plan(), known=False)


def _profiled(name: str) -> LayerGraph:
    import torch

    from pipeplan.models.profiler import profile_model
    from pipeplan.models.profiler.factory import build_model, load_factory

    sizes = ZOO_SIZES[name]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        module, inputs = build_model(load_factory(FACTORIES[name]), sizes=sizes)
        return profile_model(
            module,
            inputs,
            name=name,
            factory=FACTORIES[name],
            sizes=sizes,
            warm_up=5,
            repeats=15,
        )
    finally:
        torch.set_num_threads(threads)
