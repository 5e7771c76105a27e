"""Everything needed to get the same plan again: the command and the cluster file."""

import json
import shlex

from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile

__all__ = ["cluster_toml", "command"]


def command(file: PlanFile) -> str:
    """The `solve` command line; the profile and cluster file are those saved from the page."""
    problem, origin = file.problem, file.provenance
    cluster, asked = problem.cluster, problem.constraints
    parts = ["pipeplan", "solve", "profile.json", "--cluster", "cluster.toml"]
    parts += ["--scope", problem.scope, "--cost-model", problem.cost_model]
    parts += ["--schedule", problem.schedule]
    if problem.micro_batches is not None:
        parts += ["--micro-batches", str(problem.micro_batches)]
    if cluster.memory_bytes is not None and problem.cost_model == "pipedream":
        parts += ["--use_memory_constraint"]
    for flag, given in (
        ("--recompute", problem.recompute),
        ("--overlap-sync", problem.overlap_sync),
        ("--straight", asked.straight),
        ("--use_fewer_machines", problem.use_fewer_machines),
    ):
        parts += [flag] if given else []
    if problem.weight_copies != 4:
        parts += ["--weight-copies", str(problem.weight_copies)]
    if problem.activation_compression_ratio is not None:
        parts += ["--activation_compression_ratio", repr(problem.activation_compression_ratio)]
    if asked.max_stages is not None:
        parts += ["--max-stages", str(asked.max_stages)]
    if origin.backend is not None:
        parts += ["--seed", str(origin.seed), "--workers", str(origin.workers)]
    return shlex.join(parts)


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
