"""The question a command line asks: profile, cluster and what counts as a plan.

Shared by solve, evaluate and compare: the same flags mean the same everywhere.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from pipeplan.cli.layer_names import layer_index, layer_list
from pipeplan.cli.several import NUMBER, QUANTITY, split_values
from pipeplan.core.cluster import Cluster
from pipeplan.core.cluster_toml import read_cluster
from pipeplan.core.errors import ClusterError, ProblemError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.problem import Constraints, CostModel, Problem, Scope
from pipeplan.core.schedule import Schedule
from pipeplan.core.units import parse_bytes, parse_rate

__all__ = ["QUESTION_VALUES", "Question"]

QUESTION_VALUES: Final = {
    "-n": NUMBER,
    "--all_num_machines": NUMBER,
    "-b": QUANTITY,
    "--network_bandwidths": QUANTITY,
}
"""The question's flags that take several values, for a command's SEVERAL_VALUES."""


@dataclass(frozen=True, slots=True)
class Question:
    """Flags as typed; `problem` makes sense of them."""

    cluster: Annotated[
        Path | None,
        typer.Option("--cluster", metavar="FILE.toml", help="The cluster as a TOML file."),
    ] = None
    children: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--all_num_machines",
            metavar="N ...",
            help="Children of each level, innermost first: 8 2 is 2 servers of 8 GPUs.",
        ),
    ] = None
    bandwidths: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--network_bandwidths",
            metavar="RATE ...",
            help="Bandwidth of each level's ports: 4GiB/s 2GiB/s; bare numbers are bytes/s.",
        ),
    ] = None
    duplex: Annotated[
        Literal["full", "half"] | None,
        typer.Option("--duplex", help="Whether ports send and receive at once (default full)."),
    ] = None
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", help="Memory of a GPU, such as 16GB or 16GiB."),
    ] = None
    memory_size: Annotated[
        str | None,
        typer.Option(
            "-s",
            "--memory_size",
            metavar="BYTES",
            help="PipeDream's spelling: counts only with --use_memory_constraint.",
        ),
    ] = None
    use_memory_constraint: Annotated[
        bool, typer.Option("--use_memory_constraint", help="Let --memory_size count.")
    ] = False
    scope: Annotated[
        Scope | None,
        typer.Option("--scope", help="Which plans are looked through (default joint)."),
    ] = None
    cost_model: Annotated[
        CostModel | None,
        typer.Option(
            "--cost-model",
            help="How plans are priced (default: topology for joint, levelwise for nested).",
        ),
    ] = None
    schedule: Annotated[
        Schedule, typer.Option("--schedule", help="The order of forward and backward passes.")
    ] = "pipedream"
    micro_batches: Annotated[
        int | None,
        typer.Option("--micro-batches", metavar="M", help="Micro-batches a batch: 1f1b, gpipe."),
    ] = None
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Keep stage inputs only; compute the rest again.")
    ] = False
    overlap_sync: Annotated[
        bool, typer.Option("--overlap-sync", help="All-reduce while computing.")
    ] = False
    weight_copies: Annotated[
        int,
        typer.Option(
            "--weight-copies",
            metavar="N",
            help="Weights, gradients and optimizer state in units of the weights; Adam: 4.",
        ),
    ] = 4
    straight: Annotated[
        bool, typer.Option("--straight", "--straight_pipeline", help="No stage is replicated.")
    ] = False
    max_stages: Annotated[
        int | None, typer.Option("--max-stages", metavar="K", help="At most K stages.")
    ] = None
    force_cut: Annotated[
        list[str] | None,
        typer.Option(
            "--force-cut",
            metavar="LAYERS",
            help="A stage must end after these layers (a,b,...) and all before them; repeatable.",
        ),
    ] = None
    forbid_cut: Annotated[
        list[str] | None,
        typer.Option("--forbid-cut", metavar="LAYERS", help="No stage may end there; repeatable."),
    ] = None
    pin: Annotated[
        list[str] | None,
        typer.Option("--pin", metavar="LAYER:STAGE", help="Stage of a layer; repeatable."),
    ] = None
    together: Annotated[
        list[str] | None,
        typer.Option("--together", metavar="LAYERS", help="Layers of one stage; repeatable."),
    ] = None
    activation_compression_ratio: Annotated[
        float | None,
        typer.Option(
            "--activation_compression_ratio",
            metavar="RATIO",
            help="Transferred bytes are divided by it. Cost model pipedream counts no transfers "
            "without it, as the original.",
        ),
    ] = None
    use_fewer_machines: Annotated[
        bool,
        typer.Option("--use_fewer_machines", help="Cost model pipedream may leave machines idle."),
    ] = False

    def problem(self, graph: LayerGraph, cluster: Cluster | None = None) -> Problem:
        """The problem these flags pose for a graph, on their own cluster or on the one given.

        Raises ClusterError, ProblemError or PipeplanError naming the flag or figure at fault.
        """
        scope, cost_model = self._scope()
        return Problem(
            graph=graph,
            cluster=cluster or self.described_cluster(),
            scope=scope,
            cost_model=cost_model,
            schedule=self.schedule,
            micro_batches=self.micro_batches,
            recompute=self.recompute,
            overlap_sync=self.overlap_sync,
            weight_copies=self.weight_copies,
            activation_compression_ratio=self.activation_compression_ratio,
            use_fewer_machines=self.use_fewer_machines,
            constraints=self._constraints(graph),
        )

    def warnings(self) -> tuple[str, ...]:
        """What was asked for and has no effect, or is hardly meant."""
        out = []
        if self.memory_size is not None and not self.use_memory_constraint:
            out.append(
                "--memory_size has no effect without --use_memory_constraint, as in the original; "
                "--memory always counts"
            )
        given = [("-b", x, "/s") for x in split_values(self.bandwidths or "")]
        if self.memory is not None:
            given.append(("--memory", self.memory, ""))
        for flag, text, per in given:
            if _BARE.fullmatch(text) and 0 < float(text) < _HARDLY_BYTES:
                out.append(f"{flag} {text} is {text} B{per}; gigabytes are written {text}GB{per}")
        return tuple(out)

    @property
    def names_cluster(self) -> bool:
        """Whether any flag describes levels."""
        return not (self.cluster is None and self.children is None and self.bandwidths is None)

    def limited(self, cluster: Cluster) -> Cluster:
        """A cluster with --memory and --duplex on top of its own."""
        memory = self._memory()
        return Cluster(
            cluster.levels,
            cluster.memory_bytes if memory is None else memory,
            self.duplex or cluster.duplex,
        )

    def described_cluster(self) -> Cluster:
        """The cluster of --cluster or of -n and -b, with --memory and --duplex on top."""
        if self.cluster is not None:
            if self.children is not None or self.bandwidths is not None:
                raise ClusterError("--cluster describes the cluster whole: leave out -n and -b")
            return self.limited(read_cluster(self.cluster))
        if self.children is None or self.bandwidths is None:
            missing = "-b" if self.children is not None else "-n"
            raise ClusterError(
                "which cluster? Give --cluster FILE.toml, or the levels innermost first: "
                f"-n 8 2 -b 4GiB/s 2GiB/s ({missing} is missing)"
            )
        counts = [_count(x) for x in split_values(self.children)]
        rates = [parse_rate(x) for x in split_values(self.bandwidths)]
        return self.limited(Cluster.of(counts, rates))

    def _memory(self) -> int | None:
        if self.use_memory_constraint and self.memory_size is None:
            raise ClusterError("--use_memory_constraint needs --memory_size, as in the original")
        if self.memory is not None and self.memory_size is not None:
            raise ClusterError("--memory and --memory_size say the same: give one of them")
        if self.memory is not None:
            return parse_bytes(self.memory)
        if self.memory_size is not None and self.use_memory_constraint:
            return parse_bytes(self.memory_size)
        return None

    def _scope(self) -> tuple[Scope, CostModel]:
        """Each follows the other where one of them is left out."""
        scope, model = self.scope, self.cost_model
        if scope is None:
            scope = "joint" if model in (None, "topology") else "nested"
        if model is None:
            model = "topology" if scope == "joint" else "levelwise"
        return scope, model

    def _constraints(self, graph: LayerGraph) -> Constraints:
        return Constraints(
            straight=self.straight,
            max_stages=self.max_stages,
            forced_cuts=_cuts(graph, self.force_cut, "--force-cut"),
            forbidden_cuts=_cuts(graph, self.forbid_cut, "--forbid-cut"),
            pinned=tuple(_pin(graph, x) for x in self.pin or ()),
            together=tuple(tuple(sorted(set(layer_list(graph, x)))) for x in self.together or ()),
        )


_BARE: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_HARDLY_BYTES: Final = 1e4
"""A bare number below it is no count of bytes that a device or a link has."""


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ClusterError(f"-n takes whole numbers, not {text[:80]!r}")
    if len(text) > 9:
        raise ClusterError(f"-n {text[:80]} is more than pipeplan takes (nine digits)")
    return int(text)


def _cuts(graph: LayerGraph, given: list[str] | None, flag: str) -> tuple[frozenset[int], ...]:
    """Cuts as ideals: the layers named and all that they depend on."""
    out = []
    for text in given or ():
        cut = graph.down_closure(layer_list(graph, text))
        if len(cut) == len(graph):
            raise ProblemError(
                f"{flag} {text[:80]}: all {len(graph)} layers are among these and what they read, "
                "so nothing is left behind the cut"
            )
        out.append(cut)
    return tuple(out)


def _pin(graph: LayerGraph, text: str) -> tuple[int, int]:
    layer, colon, stage = text.rpartition(":")
    if not colon or not (stage.isascii() and stage.isdecimal() and len(stage) < 7):
        raise ProblemError(f"--pin {text[:80]!r}: write LAYER:STAGE, such as fc6:1; stages from 0")
    return layer_index(graph, layer), int(stage)
