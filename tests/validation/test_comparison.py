"""Rows of a comparison: what counts as an answer, a proof, and the end of a run. Nothing solves."""

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import BackendBugError, BackendUnavailableError, TooLargeError
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.plan import Plan, Stage
from pipeplan.core.problem import Problem
from pipeplan.solver.options import BackendName
from pipeplan.solver.result import Limit, SolveResult, Stats, Status
from pipeplan.validation.comparison import Instance, ask, profiles, rows
from pipeplan.validation.crosscheck import Claim
from pipeplan.validation.suite import CLUSTERS, named

PROBLEM = Problem(LayerGraph.build([Layer("a", 1.0, 1.0, 10, 10)], []), Cluster.of([2], [1e9]))
PLAN = Plan((Stage((0,), (0,)),))


def answer(
    backend: str, status: str, ms: float | None = None, *, seconds: float = 1.0, bound: float = 0.0
) -> SolveResult:
    """What a backend found in so many seconds."""
    kind = Status(status)
    return SolveResult(
        kind,
        Stats(backend, seconds),
        None if ms is None else PLAN,
        ms,
        ms if kind is Status.OPTIMAL else bound,
        None if kind in (Status.OPTIMAL, Status.INFEASIBLE) else Limit.TIME,
    )


def test_a_row_an_instance_with_every_backend_in_order() -> None:
    instances = [Instance(name, "4 GPUs", PROBLEM) for name in ("vgg", "gnmt")]
    asked: list[tuple[Problem, str]] = []
    heard: list[tuple[str, str]] = []

    def find(problem: Problem, backend: BackendName) -> SolveResult:
        asked.append((problem, backend))
        return answer(backend, "OPTIMAL", 10.0)

    def told(instance: Instance, claim: Claim) -> None:
        heard.append((instance.profile, claim.backend))

    coming = rows(instances, ("dp", "milp"), find, told)
    first = next(coming)
    assert len(asked) == 2, "a row is there before the next is asked"
    assert [x.backend for x in first.claims] == ["dp", "milp"]
    assert first.instance is instances[0]
    assert first.verdict.agree
    assert first.compared
    assert [row.instance.profile for row in coming] == ["gnmt"]
    assert heard == [("vgg", "dp"), ("vgg", "milp"), ("gnmt", "dp"), ("gnmt", "milp")]


@pytest.mark.parametrize("error", [TooLargeError("too many"), BackendUnavailableError("no HiGHS")])
def test_a_refusal_is_an_answer_and_no_disagreement(error: Exception) -> None:
    def find(problem: Problem, backend: BackendName) -> SolveResult:
        if backend == "dp":
            raise error
        return answer(backend, "OPTIMAL", 10.0)

    (row,) = rows([Instance("vgg", "4 GPUs", PROBLEM)], ("dp", "milp"), find)
    assert row.claims[0] == Claim("dp", None, str(error))
    assert row.verdict.agree
    assert not row.compared
    assert row.proof_seconds() == {"dp": None, "milp": 1.0}


def test_a_claim_that_does_not_hold_is_a_disagreement_of_its_row_alone() -> None:
    def find(problem: Problem, backend: BackendName) -> SolveResult:
        if backend == "cpsat":
            raise BackendBugError("cpsat claims a bound above its own plan")
        return answer(backend, "OPTIMAL", 10.0)

    asked = [Instance(name, "4 GPUs", PROBLEM) for name in ("vgg", "gnmt")]
    found = list(rows(asked, ("dp", "cpsat"), find))
    assert [len(row.claims) for row in found] == [2, 2]
    for row in found:
        assert row.verdict.disagreements == (
            "cpsat is at fault: cpsat claims a bound above its own plan",
        )


def test_only_auto_may_answer_through_another() -> None:
    def find(problem: Problem, backend: BackendName) -> SolveResult:
        return answer("dp", "OPTIMAL", 10.0)

    assert ask(PROBLEM, "auto", find).result is not None
    wrong = ask(PROBLEM, "milp", find)
    assert wrong.result is None
    assert wrong.error == "the answer came from dp, not from milp"


@pytest.mark.parametrize(
    ("status", "ms", "seconds"),
    [("OPTIMAL", 10.0, 2.5), ("INFEASIBLE", None, 2.5), ("FEASIBLE", 10.0, None)],
)
def test_what_counts_as_a_proof(status: str, ms: float | None, seconds: float | None) -> None:
    (row,) = rows(
        [Instance("vgg", "4 GPUs", PROBLEM)],
        ("dp",),
        lambda _, backend: answer(backend, status, ms, seconds=2.5),
    )
    assert row.proof_seconds() == {"dp": seconds}


def test_proofs_that_contradict_each_other_count_for_nobody() -> None:
    def find(problem: Problem, backend: BackendName) -> SolveResult:
        wrong = backend == "milp" and problem is not PROBLEM
        return answer(backend, "OPTIMAL", 11.0 if wrong else 10.0)

    other = Problem(PROBLEM.graph, Cluster.of([4], [1e9]))
    asked = [Instance("vgg", "2", PROBLEM), Instance("vgg", "4", other)]
    found = list(rows(asked, ("dp", "milp"), find))
    assert [row.verdict.agree for row in found] == [True, False]
    profile = profiles(("dp", "milp"), found)
    assert (profile.instances, profile.common) == (1, 1)


def test_names_of_clusters() -> None:
    assert named(Cluster.of([8, 2], [1e10, 1.25e9])).name == "8,2 at 10 GB/s and 1.25 GB/s"
    limited = Cluster.of([4], [1e10], memory_bytes=16 * 10**9, duplex="half")
    assert named(limited).name == "4 at 10 GB/s, 16 GB a GPU, half duplex"
    assert named(limited, "small").name == "small, 16 GB a GPU, half duplex"
    assert len({x.name for x in CLUSTERS}) == len(CLUSTERS)
