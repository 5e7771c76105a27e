"""Everything needed to get the same plan again: the command and the cluster file."""

import json
import shlex
from collections.abc import Iterator

from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile
from pipeplan.core.graph import LayerGraph
from pipeplan.core.problem import Constraints

__all__ = ["cluster_toml", "command"]


def command(file: PlanFile) -> str:
    """The `solve` command line, or for a plan that was brought `evaluate`; profile, cluster and
    plan file are those saved from the page."""
    problem, origin = file.problem, file.provenance
    asked = problem.constraints
    given = origin.status == "GIVEN"
    parts = ["pipeplan", "evaluate" if given else "solve", "profile.json"]
    parts += ["--plan", "plan.json"] if given else []
    parts += ["--cluster", "cluster.toml"]
    parts += ["--scope", problem.scope, "--cost-model", problem.cost_model]
    parts += ["--schedule", problem.schedule]
    if problem.micro_batches is not None:
        parts += ["--micro-batches", str(problem.micro_batches)]
    for flag, asked_for in (
        ("--recompute", problem.recompute),
        ("--overlap-sync", problem.overlap_sync),
        ("--straight", asked.straight),
        ("--use_fewer_machines", problem.use_fewer_machines),
    ):
        parts += [flag] if asked_for else []
    if problem.weight_copies != 4:
        parts += ["--weight-copies", str(problem.weight_copies)]
    if problem.activation_compression_ratio is not None:
        parts += ["--activation_compression_ratio", repr(problem.activation_compression_ratio)]
    if asked.max_stages is not None:
        parts += ["--max-stages", str(asked.max_stages)]
    parts += _demands(problem.graph, asked)
    if origin.backend is not None:
        parts += ["--seed", str(origin.seed), "--workers", str(origin.workers)]
    return shlex.join(parts)


def _demands(graph: LayerGraph, asked: Constraints) -> Iterator[str]:
    """The flags of cuts, pins and groups; layers by index, or by id where an id is a number."""

    def name(v: int) -> str:
        return str(v) if graph.index.get(str(v), v) == v else graph.layers[v].id

    for flag, cuts in (("--force-cut", asked.forced_cuts), ("--forbid-cut", asked.forbidden_cuts)):
        for cut in cuts:
            # What the flag names is closed over all that it depends on: its last layers do.
            ends = [v for v in sorted(cut) if not any(w in cut for w in graph.consumers[v])]
            yield from (flag, ",".join(map(name, ends)))
    for v, stage in asked.pinned:
        yield from ("--pin", f"{name(v)}:{stage}")
    for group in asked.together:
        yield from ("--together", ",".join(map(name, group)))


def cluster_toml(cluster: Cluster) -> str:
    """The cluster as `--cluster` reads it."""
    lines: list[str] = []
    if cluster.memory_bytes is not None:
        lines.append(f"memory = {cluster.memory_bytes}")
    lines.append(f'duplex = "{cluster.duplex}"')
    for level in cluster.levels:
        lines += ["", "[[level]]"]
        if level.name:
            # JSON's escapes are among TOML's.
            lines.append(f"name = {json.dumps(level.name)}")
        lines += [
            f"children = {level.children}",
            f"bandwidth = {level.bandwidth_bytes_per_s!r}",
        ]
        if level.latency_ms:
            lines.append(f"latency = {level.latency_ms / 1e3!r}")
    return "\n".join(lines) + "\n"
