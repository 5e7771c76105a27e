"""Reference files: recorded answers, `pipeplan.references/1`, one file a profile."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from pipeplan.core.errors import SourceError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.jsontext import dump_json, parse_json
from pipeplan.core.plan import Plan
from pipeplan.core.reader import Reader
from pipeplan.core.textfile import read_text

__all__ = [
    "REFERENCE_SCHEMA",
    "Record",
    "ReferenceError",
    "ReferenceFile",
    "dump_references",
    "packaged_folder",
    "plan_digest",
    "read_references",
]

REFERENCE_SCHEMA: Final = "pipeplan.references/1"
_STATUSES: Final = ("OPTIMAL", "FEASIBLE", "INFEASIBLE")


class ReferenceError(SourceError):
    """A file of references is not valid."""


@dataclass(frozen=True, slots=True)
class Record:
    """One question and what is known of its answer.

    No plan is below `bound_ms`, and one of `objective_ms` is known; both None where the question is
    INFEASIBLE. `tolerance` is relative. `source` says who found it, `date` when.
    """

    question: Mapping[str, Any]
    status: str
    objective_ms: float | None
    bound_ms: float | None
    plan_digest: str | None
    source: str
    tolerance: float
    date: str


@dataclass(frozen=True, slots=True)
class ReferenceFile:
    """The records of one profile, named as `read_profile` takes it."""

    instance: str
    profile_digest: str
    records: tuple[Record, ...]


def packaged_folder() -> Path:
    """Where the references that come with pipeplan lie."""
    return Path(__file__).resolve().parent / "references"


def plan_digest(graph: LayerGraph, plan: Plan) -> str:
    """SHA-256 of the decision: layer ids and ranks of every stage, in order."""
    content = [[[graph.layers[v].id for v in s.layers], list(s.ranks)] for s in plan.stages]
    text = json.dumps(content, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def dump_references(file: ReferenceFile) -> str:
    """The text of a file; same content, same bytes."""
    return dump_json(
        {
            "schema": REFERENCE_SCHEMA,
            "instance": file.instance,
            "profile_digest": file.profile_digest,
            "records": [
                {
                    "question": dict(x.question),
                    "status": x.status,
                    "objective_ms": x.objective_ms,
                    "bound_ms": x.bound_ms,
                    "plan_digest": x.plan_digest,
                    "source": x.source,
                    "tolerance": x.tolerance,
                    "date": x.date,
                }
                for x in file.records
            ],
        }
    )


def read_references(path: Path) -> ReferenceFile:
    """Read one file; raises ReferenceError naming the file and what is wrong in it."""
    data = parse_json(read_text(path, ReferenceError), ReferenceError, path)
    try:
        top = Reader(data, "the file", ReferenceError)
        if top.text("schema") != REFERENCE_SCHEMA:
            top.fail(f"this version reads schema {REFERENCE_SCHEMA!r}", top.text("schema"))
        top.only("schema", "instance", "profile_digest", "records")
        records = tuple(_record(x) for x in top.objects("records"))
        if not records:  # Comparing with nothing would look like agreement.
            top.fail("records is empty", [])
        instance = top.text("instance")
        if instance in ("", ".", "..") or "/" in instance or "\\" in instance:
            # A profile beside the file, or a packaged one: a reference file reads nothing else.
            top.fail("instance is no plain name of a profile", instance)
        return ReferenceFile(instance, top.text("profile_digest"), records)
    except ReferenceError as error:
        if error.path is not None:
            raise
        raise ReferenceError(error.message, path=path, text=error.text) from None


def _record(entry: Reader) -> Record:
    entry.only(*(field.name for field in fields(Record)))
    status = entry.text("status")
    objective, bound = entry.optional_number("objective_ms"), entry.optional_number("bound_ms")
    tolerance = entry.number("tolerance")
    if status not in _STATUSES:
        entry.fail(f"status is none of {', '.join(_STATUSES)}", status)
    if (status == "INFEASIBLE") != (objective is None):
        entry.fail("an infeasible question has no objective, any other has one", objective)
    if not (math.isfinite(tolerance) and 0 <= tolerance < 1):
        entry.fail("tolerance is not from 0 to below 1", tolerance)
    if objective is not None and bound is not None and bound > objective * (1 + tolerance):
        entry.fail(f"the bound is above the objective {objective!r}", bound)
    return Record(
        question=entry.mapping("question"),
        status=status,
        objective_ms=objective,
        bound_ms=bound,
        plan_digest=entry.optional_text("plan_digest"),
        source=entry.text("source"),
        tolerance=tolerance,
        date=entry.text("date"),
    )
