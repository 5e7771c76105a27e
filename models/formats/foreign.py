"""Recognises files of other programs, so as to say what they are instead of what they lack."""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["recognise"]

_BY_KEYS: Final = (
    ({"maxFPGAs", "maxSizePerFPGA"}, "a dnn-partitioning workload"),
    ({"cpus", "fpgas"}, "a dnn-partitioning expert split"),
    ({"maxDevices", "mbsInBatch"}, "a Piper workload"),
    ({"maxDevices", "maxBatchSize"}, "a Piper workload"),
    ({"stage_to_rank_map"}, "a PipeDream rank map (a plan, for `pipeplan evaluate --plan`)"),
    ({"traceEvents"}, "a Chrome trace"),
)


def recognise(document: Mapping[str, Any]) -> str | None:
    """What a JSON object seems to be, in words; None where nothing is recognised."""
    schema = document.get("schema")
    if isinstance(schema, str):
        if schema.startswith("pipeplan.plan/"):
            return "a pipeplan plan (for `pipeplan show`)"
        return f"a document of schema {schema[:60]!a}"
    for keys, what in _BY_KEYS:
        if keys <= document.keys():
            return what
    nodes = document.get("nodes")
    if isinstance(nodes, list) and nodes and isinstance(nodes[0], dict):
        if "TMPCs" in nodes[0]:
            return "a Piper workload"
        if "fpgaLatency" in nodes[0]:
            return "a dnn-partitioning workload"
    return None
