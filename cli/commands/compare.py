"""`pipeplan compare`: several backends on the same question; they agree, or exit code 1."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pipeplan.cli.parameters import expanded
from pipeplan.cli.question import QUESTION_VALUES, Question
from pipeplan.cli.search import Search

if TYPE_CHECKING:
    from pipeplan.core.problem import Problem
    from pipeplan.validation.crosscheck import Claim, Verdict

__all__ = ["SEVERAL_VALUES", "command"]

SEVERAL_VALUES: Final = QUESTION_VALUES


@expanded
def command(
    question: Question,
    search: Search,
    profiles: Annotated[
        list[str],
        typer.Argument(metavar="PROFILE...", help="Profile files or packaged profiles."),
    ],
    backends: Annotated[
        str, typer.Option("--backends", metavar="A,B,...", help="Who searches, each in turn.")
    ] = "dp,cpsat,milp",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Solve with several backends; they must agree.

    Example: pipeplan compare vgg16 -n 8 2 -b 4GiB/s 2GiB/s --backends dp,cpsat,milp

    One row a backend. Exit code 1 if objectives differ beyond quantisation, if one says infeasible
    and another has a plan, or if a bound lies above someone's plan; 3 if of some profile nobody
    found or proved anything.
    """
    from pipeplan.cli.errors import EXIT_FALSE, EXIT_NO_PLAN
    from pipeplan.cli.inputs import loaded
    from pipeplan.cli.output import print_json
    from pipeplan.validation.crosscheck import crosscheck

    names = _backends(backends)
    search.options()  # What is wrong with these is not a backend's answer.
    problems = [(profile, loaded(profile, question)) for profile in profiles]
    agree = answered = True
    documents: list[dict[str, Any]] = []
    for profile, problem in problems:
        claims = [_claim(problem, name, search) for name in names]
        verdict = crosscheck(claims)
        agree = agree and verdict.agree
        answered = answered and verdict.answered > 0
        if as_json:
            documents.append(_document(profile, claims, verdict))
        else:
            _show(profile, problem, claims, verdict)
    if as_json:
        print_json({"agree": agree, "instances": documents})
    if not agree:
        raise typer.Exit(EXIT_FALSE)
    if not answered:
        raise typer.Exit(EXIT_NO_PLAN)


def _backends(text: str) -> list[Any]:
    from pipeplan.core.errors import ProblemError
    from pipeplan.solver.options import BACKENDS

    names = [x.strip() for x in text.split(",") if x.strip()]
    for name in names:
        if name not in BACKENDS:
            raise ProblemError(f"there is no backend {name!r}; choose from {', '.join(BACKENDS)}")
    if len(set(names)) != len(names) or not names:
        raise ProblemError(f"--backends {text[:80]!r}: name each backend once")
    return names


def _claim(problem: "Problem", backend: Any, search: Search) -> "Claim":
    """One backend's answer. That it cannot run or reached its size is an answer too; that it claims
    what does not hold is not, and ends the command."""
    from pipeplan.cli.search import find
    from pipeplan.core.errors import BackendUnavailableError, ProblemError
    from pipeplan.validation.crosscheck import Claim

    try:
        result = find(problem, backend, search)
    except (BackendUnavailableError, ProblemError) as error:
        return Claim(backend, None, str(error))
    answered = result.stats.backend
    if backend != "auto" and not answered.startswith(backend):
        # Another's answer under this name would agree with that other's row and prove nothing.
        return Claim(backend, None, f"the answer came from {answered}, not from {backend}")
    return Claim(backend, result)


def _show(profile: str, problem: "Problem", claims: "list[Claim]", verdict: "Verdict") -> None:
    from pipeplan.cli.render.comparison import comparison
    from pipeplan.cli.render.terminal import show
    from pipeplan.cli.render.verdict import cluster_line

    show(*comparison(f"{profile} on {cluster_line(problem.cluster)}", claims, verdict))


def _document(profile: str, claims: "list[Claim]", verdict: "Verdict") -> dict[str, Any]:
    rows = []
    for claim in claims:
        result = claim.result
        rows.append(
            {
                "backend": claim.backend,
                "error": claim.error or None,
                "status": None if result is None else result.status.value,
                "limit": None if result is None or result.limit is None else result.limit.value,
                "objective_ms": None if result is None else result.objective_ms,
                "bound_ms": None if result is None else result.bound_ms,
                "seconds": None if result is None else result.stats.seconds,
                "variables": None if result is None else result.stats.variables,
                "constraints": None if result is None else result.stats.constraints,
            }
        )
    return {"profile": profile, "disagreements": list(verdict.disagreements), "backends": rows}
