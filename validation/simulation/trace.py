"""A run as a Chrome trace: open it in https://ui.perfetto.dev or chrome://tracing."""

from collections.abc import Iterator
from typing import Any

from pipeplan.core.jsontext import dump_json
from pipeplan.validation.simulation.engine import BACKWARD, FORWARD
from pipeplan.validation.simulation.memory import holdings
from pipeplan.validation.simulation.result import Simulation

__all__ = ["chrome_trace"]

_PORTS = "ports"


def chrome_trace(result: Simulation) -> str:
    """The JSON text of the Trace Event Format (complete events, microseconds).

    A process for each server with a thread for each rank, one for the ports, and the memory of the
    fullest rank of each stage as a counter.
    """
    return dump_json({"displayTimeUnit": "ms", "traceEvents": list(_events(result))})


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _events(result: Simulation) -> Iterator[dict[str, Any]]:
    plan, cluster = result.pipeline.plan, result.pipeline.problem.cluster
    stage_of = plan.stage_of_rank
    for server in sorted({cluster.server_of(rank) for rank in stage_of}):
        yield _named("process_name", server, 0, f"server {server}")
    for rank in sorted(stage_of):
        server = cluster.server_of(rank)
        yield _named("thread_name", server, rank, f"rank {rank} (stage {stage_of[rank]})")
    log = result.run.operations
    for rank, kind, m, start, end in zip(
        log.rank, log.kind, log.micro_batch, log.start_ms, log.end_ms, strict=True
    ):
        name = {FORWARD: f"F{m}", BACKWARD: f"B{m}"}.get(kind, f"all-reduce {m}")
        yield {
            "ph": "X",
            "name": name,
            "cat": {FORWARD: "forward", BACKWARD: "backward"}.get(kind, "all-reduce"),
            "pid": cluster.server_of(rank),
            "tid": rank,
            "ts": start * 1e3,
            "dur": (end - start) * 1e3,
            "args": {"stage": stage_of[rank]},
        }
    pid = cluster.servers
    yield _named("process_name", pid, 0, _PORTS)
    for i, port in enumerate(result.pipeline.ports):
        way = "" if port.direction == "both" else f", {port.direction}"
        yield _named("thread_name", pid, i, cluster.port_name(port.level, port.child) + way)
    busy = result.run.ports
    for where, start, end, tag in zip(busy.port, busy.start_ms, busy.end_ms, busy.tag, strict=True):
        what = "activation" if tag % 2 == 0 else "gradient"
        yield {
            "ph": "X",
            "name": f"all-reduce of stage {-1 - tag}" if tag < 0 else f"{what} {tag // 2}",
            "cat": "all-reduce" if tag < 0 else "transfer",
            "pid": pid,
            "tid": where,
            "ts": start * 1e3,
            "dur": (end - start) * 1e3,
        }
    fullest = [share.peak_rank for share in result.stages]
    for s, series in enumerate(holdings(result.pipeline, result.run, fullest)):
        for held in series:
            yield {
                "ph": "C",
                "name": f"memory of rank {fullest[s]} (stage {s})",
                "pid": cluster.server_of(fullest[s]),
                "ts": held.time_ms * 1e3,
                "args": {"bytes": held.total_bytes},
            }
