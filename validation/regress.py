"""Today's answers against recorded ones: every backend, every record, and what differs in words."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from pipeplan.core.errors import (
    BackendBugError,
    BackendUnavailableError,
    PipeplanError,
    ProblemError,
)
from pipeplan.core.graph import LayerGraph
from pipeplan.core.problem import Problem
from pipeplan.core.problem_codec import problem_from_dict, problem_to_dict
from pipeplan.core.units import format_ms, plural
from pipeplan.models.formats import read_profile
from pipeplan.solver.options import BackendName
from pipeplan.solver.result import SolveResult, Status
from pipeplan.validation.comparison import Find
from pipeplan.validation.reference_files import Record, ReferenceError, ReferenceFile, plan_digest
from pipeplan.validation.suite import reference_problems

__all__ = [
    "VERDICTS",
    "Finding",
    "Verdict",
    "compare",
    "question_words",
    "record_answers",
    "regress",
]

Verdict = Literal["same", "tie", "unfinished", "cannot", "different"]
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)

_QUANTISED: Final = 1e-4
"""How far a backend with integer ticks may be above an optimum that it calls proven."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One record under one backend. Only `different` is a regression.

    `tie` is another plan of the same price; `unfinished` a search that a limit stopped, consistent
    with the record; `cannot` a backend that does not take the question.
    """

    instance: str
    question: str
    backend: str
    verdict: Verdict
    text: str


def question_words(record: Record) -> str:
    """A record's question in a few words."""
    asked = record.question
    cluster = asked.get("cluster", {})
    levels = cluster.get("levels", []) if isinstance(cluster, dict) else []
    sizes = "x".join(str(x.get("children")) for x in levels if isinstance(x, dict))
    memory = cluster.get("memory_bytes") if isinstance(cluster, dict) else None
    limit = "" if memory is None else f", {memory} bytes"
    return (
        f"{asked.get('scope')} {asked.get('cost_model')} {asked.get('schedule')} on {sizes}{limit}"
    )


def regress(
    files: Iterable[tuple[Path, ReferenceFile]],
    backends: Sequence[BackendName],
    find: Find,
) -> Iterator[Finding]:
    """Check every record with what `find` answers; yields as it goes.

    Raises ReferenceError where a record's question is none, naming file and record.
    """
    for path, file in files:
        graph = read_profile(_source(path, file.instance)).graph
        if graph.digest != file.profile_digest:
            yield Finding(
                file.instance,
                "the profile itself",
                "-",
                "different",
                f"the profile is {graph.digest}, recorded were answers for {file.profile_digest}",
            )
            continue
        for number, record in enumerate(file.records):
            try:
                problem = problem_from_dict(dict(record.question), graph)
            except PipeplanError as error:
                raise ReferenceError(f"records[{number}]: {error}", path=path) from None
            for backend in backends:
                yield _checked(file.instance, problem, record, backend, find)


def _source(path: Path, instance: str) -> str | Path:
    """A profile beside the reference file goes before a packaged one of that name."""
    beside = path.parent / instance
    return beside if beside.is_file() else instance


def _checked(
    instance: str, problem: Problem, record: Record, backend: BackendName, find: Find
) -> Finding:
    try:
        found = find(problem, backend)
    except (ProblemError, BackendUnavailableError) as refusal:
        verdict: Verdict = "cannot"
        text = str(refusal)
    except BackendBugError as fault:
        verdict, text = "different", str(fault)
    else:
        verdict, text = compare(problem.graph, record, found)
    return Finding(instance, question_words(record), backend, verdict, text)


def compare(graph: LayerGraph, record: Record, found: SolveResult) -> tuple[Verdict, str]:
    """Whether an answer agrees with a record, and where not, how."""
    known, floor = record.objective_ms, record.bound_ms
    slack = 1 + record.tolerance
    if known is None:
        if found.status is Status.INFEASIBLE:
            return "same", ""
        if found.plan is not None:
            assert found.objective_ms is not None
            return "different", (
                f"recorded INFEASIBLE, but there is a plan of {format_ms(found.objective_ms)}"
            )
        return "unfinished", f"{found.status.value}; recorded INFEASIBLE"
    if found.status is Status.INFEASIBLE:
        return "different", f"INFEASIBLE, but a plan of {known!r} ms is recorded"
    if found.bound_ms is not None and found.bound_ms > known * slack:
        return "different", f"bound {found.bound_ms!r} ms is above the recorded {known!r} ms"
    ours = found.objective_ms
    if ours is not None and floor is not None and ours < floor / slack:
        return "different", f"objective {ours!r} ms is below the recorded bound {floor!r} ms"
    if found.status is not Status.OPTIMAL:
        shown = "no plan" if ours is None else format_ms(ours)
        return "unfinished", f"{found.status.value}: {shown}; recorded {format_ms(known)}"
    assert ours is not None
    assert found.plan is not None
    if ours > known * (slack + _QUANTISED):
        return "different", f"objective {ours!r} ms is above the recorded {known!r} ms"
    if ours > known * slack:
        return "same", f"{ours!r} ms, within integer ticks of {known!r} ms"
    if record.plan_digest not in (None, plan_digest(graph, found.plan)):
        return "tie", "another plan of the recorded price"
    return "same", ""


def record_answers(
    instance: str, graph: LayerGraph, find: Find, old: ReferenceFile | None, date: str
) -> tuple[ReferenceFile, list[str]]:
    """The references of a profile as they would be recorded now, and what changes, in words.

    `find` solves, and must not answer for a search that was interrupted. A record that still holds
    is kept as it is, date included. Where nobody can answer within the limit, what was recorded
    stays, and that is said.
    """
    kept = {}
    if old is not None and old.profile_digest == graph.digest:
        kept = {_key(x): x for x in old.records}
    changes: list[str] = []
    if old is not None and not kept and old.records:
        changes.append(
            f"the profile changed: {plural(len(old.records), 'record is', 'records are')} made anew"
        )
    records: list[Record] = []
    for problem in reference_problems(graph):
        asked = problem_to_dict(problem)
        before = kept.pop(_key_of(asked), None)
        try:
            found = find(problem, "auto")
        except PipeplanError as refusal:
            # No answer refutes nothing: what was known stays known.
            changes.append(f"{asked['scope']} {asked['cost_model']}: not answered: {refusal}")
            records += [] if before is None else [before]
            continue
        if before is not None and _holds(graph, before, found):
            records.append(before)
            continue
        if found.status is Status.NO_SOLUTION:
            changes.append(f"{asked['scope']} {asked['cost_model']}: nothing found in the limit")
            records += [] if before is None else [before]
            continue
        after = Record(
            question=asked,
            status=found.status.value,
            objective_ms=found.objective_ms,
            bound_ms=found.bound_ms,
            plan_digest=None if found.plan is None else plan_digest(graph, found.plan),
            source=f"pipeplan {found.stats.backend}",
            tolerance=1e-9 if found.stats.backend == "dp" else _QUANTISED,
            date=date,
        )
        if before is not None and _better_known(before, after):
            records.append(before)
            continue
        changes.append(f"{question_words(after)}: {_answer(before)} -> {_answer(after)}")
        records.append(after)
    changes += [f"{question_words(x)}: {_answer(x)} -> no longer asked" for x in kept.values()]
    return ReferenceFile(instance, graph.digest, tuple(records)), changes


def _holds(graph: LayerGraph, before: Record, found: SolveResult) -> bool:
    """Whether a record says all that the answer says."""
    proven_now = found.status is Status.OPTIMAL and before.status == "FEASIBLE"
    return not proven_now and compare(graph, before, found)[0] in ("same", "tie")


def _better_known(before: Record, after: Record) -> bool:
    """Whether a search that a limit stopped knows less than the record that it agrees with."""
    if after.status != "FEASIBLE" or before.objective_ms is None or before.bound_ms is None:
        return False
    assert after.objective_ms is not None
    return (
        before.objective_ms <= after.objective_ms
        and before.bound_ms >= (after.bound_ms or 0.0)
        and before.bound_ms <= after.objective_ms
    )


def _key(record: Record) -> str:
    return _key_of(record.question)


def _key_of(question: object) -> str:
    return json.dumps(question, sort_keys=True)


def _answer(record: Record | None) -> str:
    if record is None:
        return "not recorded"
    if record.objective_ms is None:
        return record.status
    bound = "" if record.bound_ms is None else f", bound {record.bound_ms!r}"
    return f"{record.status} {record.objective_ms!r} ms{bound}"
