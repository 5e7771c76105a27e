"""Packages of small networks, and their factories in a module that ranks can import."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeplan.codegen.package import build_package, write_package
from pipeplan.core.check import violations
from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile, Provenance
from pipeplan.core.cost import evaluate
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import NestedStage, joint_plan, nested_plan
from pipeplan.core.problem import Problem
from pipeplan.models.profiler import profile_model
from pipeplan.models.profiler.factory import build_model, load_factory

FACTORIES = '''
import torch
from torch import nn


class Net(nn.Module):
    """Batch norm, in-place ReLU, dropout, a skip that is relayed, and an unused parameter."""

    def __init__(self, dropout):
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.relu = nn.ReLU(inplace=True)
        self.b = nn.Linear(16, 16)
        self.drop = nn.Dropout(dropout)
        self.c = nn.Linear(16, 16)
        self.d = nn.Linear(16, 5)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x):
        h = self.relu(self.norm(self.a(x)))
        return self.d(torch.tanh(self.c(self.drop(self.b(h)).relu())) + h)


def net(dropout=0.3):
    return Net(dropout), (torch.randn(4, 8),)
'''


ONE_RANK = '''
import os
import sys
from pathlib import Path


def run(directory, arguments, environment, log):
    """One rank, as torchrun would start it; what it prints goes to a file."""
    os.environ.update(environment)
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    import torch

    torch.set_num_threads(1)
    from pipeplan.runtime.launch import main
    from pipeplan.runtime.package import load_package, load_recipe

    main(Path(directory), load_recipe(load_package(Path(directory))), arguments)
'''
"""What each process of a test runs; in a module of its own, which a new process can import."""


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def factories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of module `pipeplan_small_nets`, which is on the path meanwhile."""
    folder = tmp_path_factory.mktemp("factories")
    (folder / "pipeplan_small_nets.py").write_text(FACTORIES)
    (folder / "pipeplan_one_rank.py").write_text(ONE_RANK)
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(folder))
    patch.setenv("PYTHONPATH", str(folder), prepend=":")
    importlib.import_module("pipeplan_small_nets")
    yield folder
    patch.undo()


def cuts(graph: LayerGraph, count: int) -> list[int]:
    """First layers of about equal stages, cut where no group is parted."""
    groups = [sorted(graph.index[x] for x in group.layers) for group in graph.together]
    found = [0]
    for i in range(1, count):
        places = [
            c
            for c in range(found[-1] + 1, len(graph))
            if all(group[-1] < c or group[0] >= c for group in groups)
        ]
        if places:
            found.append(min(places, key=lambda c: (abs(c - i * len(graph) / count), c)))
    return [*found, len(graph)]


@pytest.fixture(scope="session")
def make_package(tmp_path_factory: pytest.TempPathFactory, factories: Path) -> Callable[..., Path]:
    """Profile a factory's model (estimated), cut it evenly, and generate its package."""
    profiles: dict[str, LayerGraph] = {}

    def make(
        factory: str,
        replicas: list[int],
        sizes: Mapping[str, Any] | None = None,
        parted: bool = False,
        **problem: Any,
    ) -> Path:
        """`parted` cuts anywhere, through groups of layers that belong together."""
        key = f"{factory} {sorted((sizes or {}).items())}"
        if key not in profiles:
            model, inputs = build_model(load_factory(factory), sizes=sizes)
            profiles[key] = profile_model(
                model, inputs, name="net", estimate="v100", factory=factory, sizes=sizes
            )
        graph = profiles[key]
        found = (
            [i * len(graph) // len(replicas) for i in range(len(replicas) + 1)]
            if parted
            else cuts(graph, len(replicas))
        )
        counts = replicas[: len(found) - 1]
        stages = tuple(
            (tuple(range(a, b)), r) for a, b, r in zip(found, found[1:], counts, strict=False)
        )
        cluster = Cluster.of([sum(counts)], [1e9])
        if parted:
            # Cost model pipedream knows no groups, so its plans may part them.
            question = Problem(graph, cluster, scope="nested", cost_model="pipedream")
            plan = nested_plan(cluster, tuple(NestedStage(*stage) for stage in stages))
        else:
            question = Problem(graph, cluster, **problem)
            plan = joint_plan(cluster, stages)
        assert violations(question, plan) == ()
        file = PlanFile(question, plan, evaluate(question, plan), Provenance("GIVEN"))
        target = tmp_path_factory.mktemp("package") / "net"
        write_package(build_package(file), target)
        return target

    return make
