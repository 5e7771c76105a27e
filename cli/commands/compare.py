"""`pipeplan compare`: several backends on the same questions; they agree, or exit code 1."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipeplan.cli.parameters import expanded
from pipeplan.cli.question import QUESTION_VALUES, Question
from pipeplan.cli.search import Search

if TYPE_CHECKING:
    from pipeplan.solver.options import BackendName
    from pipeplan.validation.comparison import Instance, Row

__all__ = ["SEVERAL_VALUES", "command"]

SEVERAL_VALUES: Final = QUESTION_VALUES


@expanded
def command(
    question: Question,
    search: Search,
    profiles: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROFILE...", help="Profile files or packaged profiles."),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            metavar="NAME|FOLDER",
            help="Instead of PROFILE: `packaged`, or every profile in a folder; without a cluster, "
            "on four of them.",
        ),
    ] = None,
    backends: Annotated[
        str, typer.Option("--backends", metavar="A,B,...", help="Who searches, each in turn.")
    ] = "dp,cpsat,milp",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
    as_markdown: Annotated[
        bool,
        typer.Option("--markdown", help="Print one table in Markdown, each row as it is done."),
    ] = False,
) -> None:
    """Solve with several backends; they must agree.

    Examples: pipeplan compare vgg16 -n 8 2 -b 4GiB/s 2GiB/s --backends dp,cpsat,milp

    pipeplan compare --suite packaged --time-limit 10s --markdown > table.md

    One row a backend; with --suite or --markdown one row a profile and cluster, then how often each
    backend proves within a factor of the fastest, and Ctrl-C gives the table so far. Exit code 1 if
    objectives differ beyond quantisation, if one says infeasible and another has a plan, or if a
    bound lies above someone's plan; 3 if of some instance nobody found or proved anything.
    """
    from pipeplan.cli.errors import EXIT_FALSE, EXIT_NO_PLAN
    from pipeplan.cli.search import backends_named
    from pipeplan.cli.suites import asked_instances
    from pipeplan.core.errors import PipeplanError

    if as_json and as_markdown:
        raise PipeplanError("--json and --markdown each print a document: give one of them")
    names = backends_named(backends)
    search.options()  # What is wrong with these is not a backend's answer.
    instances = asked_instances(profiles or (), suite, question)
    if suite is None and not as_markdown:
        found = _pages(instances, names, search, as_json=as_json)
    else:
        found = _table(instances, names, search, as_json=as_json, as_markdown=as_markdown)
    if not all(row.verdict.agree for row in found):
        raise typer.Exit(EXIT_FALSE)
    if not all(row.verdict.answered for row in found):
        raise typer.Exit(EXIT_NO_PLAN)


def _pages(
    instances: "list[Instance]",
    backends: "tuple[BackendName, ...]",
    search: Search,
    *,
    as_json: bool,
) -> "list[Row]":
    """A page an instance; Ctrl-C ends one search, with its best plan, and the next goes on."""
    from pipeplan.cli.comparing import comparison_to_dict
    from pipeplan.cli.output import print_json
    from pipeplan.cli.render.comparison import comparison
    from pipeplan.cli.render.terminal import show
    from pipeplan.cli.render.verdict import cluster_line
    from pipeplan.cli.search import find
    from pipeplan.validation.comparison import rows

    found = []
    for row in rows(instances, backends, lambda problem, name: find(problem, name, search)):
        found.append(row)
        if not as_json:
            where = cluster_line(row.instance.problem.cluster)
            title = f"{row.instance.profile} on {where}"
            show(*comparison(title, row.claims, row.verdict))
    if as_json:
        print_json(comparison_to_dict(backends, found, len(instances)))
    return found


def _table(
    instances: "list[Instance]",
    backends: "tuple[BackendName, ...]",
    search: Search,
    *,
    as_json: bool,
    as_markdown: bool,
) -> "list[Row]":
    """One table; what was finished is printed whatever ends the run."""
    from pipeplan.cli.comparing import comparison_to_dict, followed
    from pipeplan.cli.output import print_json, print_lines
    from pipeplan.cli.render.markdown import table_head, table_row, table_tail
    from pipeplan.cli.render.suite import suite_page
    from pipeplan.cli.render.terminal import show

    found: list[Row] = []
    if as_markdown:
        print_lines(table_head(backends))
    try:
        for row in followed(instances, backends, search):
            found.append(row)
            if as_markdown:
                print_lines([table_row(row)])
    finally:
        if as_json:
            print_json(comparison_to_dict(backends, found, len(instances)))
        elif as_markdown:
            print_lines(table_tail(backends, found, len(instances)))
        else:
            show(*suite_page(backends, found, len(instances)))
    return found
