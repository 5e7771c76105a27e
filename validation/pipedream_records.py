"""Outputs of PipeDream's optimizer as references: one JSON object a line, profiles beside them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pipeplan.core.cluster import Cluster
from pipeplan.core.graph import LayerGraph
from pipeplan.core.jsontext import parse_json
from pipeplan.core.problem import Constraints, Problem
from pipeplan.core.problem_codec import problem_to_dict
from pipeplan.core.reader import Reader
from pipeplan.core.textfile import read_text
from pipeplan.models.formats import read_profile
from pipeplan.validation.reference_files import Record, ReferenceError, ReferenceFile

__all__ = ["PIPEDREAM_RECORDS", "read_pipedream_records"]

PIPEDREAM_RECORDS: Final = "pipedream.jsonl"
_MAX_RECORDS: Final = 100_000


def read_pipedream_records(
    folder: Path, only: tuple[str, ...] = ()
) -> Iterator[tuple[Path, ReferenceFile]]:
    """The records of `folder/pipedream.jsonl`, grouped by profile, of the profiles in `only`.

    Where the original crashed there is nothing to compare with. Raises ReferenceError naming file
    and line.
    """
    path = folder / PIPEDREAM_RECORDS
    lines = read_text(path, ReferenceError).splitlines()[:_MAX_RECORDS]
    graphs: dict[str, LayerGraph] = {}
    found: dict[str, list[Record]] = {}
    for number, line in enumerate(lines, 1):
        data = parse_json(line, ReferenceError, path)
        if number == 1 and isinstance(data, dict) and "fields" in data:
            continue
        entry = Reader(data, f"line {number}", ReferenceError)
        profile = entry.text("profile")
        if entry.text("outcome") != "ok" or (only and profile not in only):
            continue
        if profile not in graphs:
            name = f"pipedream/{profile}.graph.txt"
            if "/" in profile or not (folder / name).is_file():
                entry.fail(f"there is no profile {name}", profile)
            graphs[profile] = read_profile(folder / name).graph
        question = problem_to_dict(_problem(entry.object("args"), graphs[profile]))
        time_ms = entry.number("pipeline_time") * 1e3
        found.setdefault(profile, []).append(_record(question, time_ms))
    for profile, records in found.items():
        instance = f"pipedream/{profile}.graph.txt"
        yield path, ReferenceFile(instance, graphs[profile].digest, tuple(records))


def _record(question: dict[str, Any], time_ms: float) -> Record:
    return Record(
        question=question,
        status="OPTIMAL",
        objective_ms=time_ms,
        bound_ms=time_ms,
        plan_digest=None,  # of plans of equal price the original takes any
        source="PipeDream's optimizer",
        tolerance=1e-9,
        date="",
    )


def _problem(args: Reader, graph: LayerGraph) -> Problem:
    memory = args.optional_number("memory_size")
    limited = args.flag("use_memory_constraint") and memory is not None
    return Problem(
        graph=graph,
        cluster=Cluster.of(
            args.integers("n"),
            [float(x) for x in args.items("bandwidths")],
            memory_bytes=int(memory) if limited and memory is not None else None,
        ),
        scope="nested",
        cost_model="pipedream",
        activation_compression_ratio=args.optional_number("activation_compression_ratio"),
        use_fewer_machines=args.flag("use_fewer_machines"),
        constraints=Constraints(straight=args.flag("straight_pipeline")),
    )
