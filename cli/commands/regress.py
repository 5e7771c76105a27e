"""`pipeplan regress`: today's answers against recorded ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeplan.solver.options import BackendName, SolveOptions
    from pipeplan.validation.reference_files import ReferenceFile
    from pipeplan.validation.regress import Finding

__all__ = ["command"]


def command(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="References: *.json of pipeplan, or PipeDream's outputs (pipedream.jsonl). "
            "Without it, those that come with pipeplan.",
        ),
    ] = None,
    backends: Annotated[
        str, typer.Option("--backends", metavar="A,B", help="Who is checked.")
    ] = "dp,cpsat,milp",
    only: Annotated[
        str | None, typer.Option("--only", metavar="A,B", help="These instances alone.")
    ] = None,
    time_limit: Annotated[
        str, typer.Option("--time-limit", metavar="TIME", help="Of each search.")
    ] = "20s",
    update: Annotated[
        bool, typer.Option("--update", help="Record today's answers, and print what changes.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Compare with recorded answers; exit code 1 where one differs.

    Every backend must meet every reference: the objective where it proves one, bounds that do not
    contradict where a limit stops it. Only --update writes.
    """
    from pipeplan.cli.errors import EXIT_FALSE
    from pipeplan.cli.output import print_json
    from pipeplan.core.units import parse_duration_s
    from pipeplan.solver.options import SolveOptions
    from pipeplan.validation.regress import regress

    options = SolveOptions(time_limit_s=parse_duration_s(time_limit))
    wanted = () if only is None else tuple(only.split(","))
    names = _backends(backends)
    if update:
        _update(folder, wanted, options)
        return
    findings = []
    for finding in regress(_references(folder, wanted), names, options):
        findings.append(finding)
        if not as_json and finding.verdict in ("different", "unfinished"):
            _print(finding)
    counts = {
        kind: sum(x.verdict == kind for x in findings)
        for kind in ("same", "tie", "unfinished", "cannot", "different")
    }
    if as_json:
        rows = [
            {
                "instance": x.instance,
                "question": x.question,
                "backend": x.backend,
                "verdict": x.verdict,
                "text": x.text,
            }
            for x in findings
        ]
        print_json({"counts": counts, "findings": rows})
    else:
        typer.echo(
            f"{len(findings)} checks: {counts['same']} the same, {counts['tie']} another plan of "
            f"the same price, {counts['unfinished']} stopped by the limit, {counts['cannot']} not "
            f"taken by the backend, {counts['different']} different"
        )
    if counts["different"]:
        raise typer.Exit(EXIT_FALSE)


def _backends(text: str) -> "tuple[BackendName, ...]":
    from typing import cast

    from pipeplan.core.errors import PipeplanError
    from pipeplan.solver.options import BACKENDS

    names = tuple(x.strip() for x in text.split(","))
    for name in names:
        if name not in BACKENDS:
            raise PipeplanError(
                f"there is no backend {name[:40]!r}; choose from {', '.join(BACKENDS)}"
            )
    return cast("tuple[BackendName, ...]", names)


def _references(
    folder: Path | None, only: tuple[str, ...]
) -> "Iterator[tuple[Path, ReferenceFile]]":
    from pipeplan.core.errors import PipeplanError
    from pipeplan.validation.pipedream_records import PIPEDREAM_RECORDS, read_pipedream_records
    from pipeplan.validation.reference_files import packaged_folder, read_references

    place = packaged_folder() if folder is None else folder
    if not place.is_dir():
        raise PipeplanError(f"{place} is not a folder of references")
    paths = [x for x in sorted(place.glob("*.json")) if not only or x.stem in only]
    outputs = (place / PIPEDREAM_RECORDS).is_file()
    if not paths and not outputs:
        named = f" of {', '.join(only)}" if only else ""
        raise PipeplanError(f"{place} holds no references{named}")
    for path in paths:
        yield path, read_references(path)
    if outputs:
        yield from read_pipedream_records(place, only)


def _print(finding: "Finding") -> None:
    from pipeplan.cli.render.terminal import plain

    line = f"{finding.verdict}: {finding.instance}, {finding.question}, {finding.backend}: "
    typer.echo(plain(line + finding.text).plain)


def _update(folder: Path | None, only: tuple[str, ...], options: "SolveOptions") -> None:
    """Answer the questions of every packaged profile again, and write the files that change."""
    import datetime

    from pipeplan.core.errors import PipeplanError
    from pipeplan.core.textfile import write_text
    from pipeplan.models.formats import read_profile
    from pipeplan.models.profiles import packaged_names
    from pipeplan.validation.reference_files import (
        dump_references,
        packaged_folder,
        read_references,
    )
    from pipeplan.validation.regress import record_answers

    place = packaged_folder() if folder is None else folder
    if not place.is_dir():
        raise PipeplanError(f"{place} is not a folder of references")
    unknown = [x for x in only if x not in packaged_names()]
    if unknown:
        raise PipeplanError(
            f"there is no packaged profile {unknown[0][:40]!r}; only they are recorded"
        )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for name in only or packaged_names():
        path = place / f"{name}.json"
        old = read_references(path) if path.exists() else None
        graph = read_profile(name).graph
        new, changes = record_answers(name, graph, options, old, today)
        for change in changes:
            typer.echo(f"{name}: {change}")
        if new != old and new.records:
            write_text(path, dump_references(new), force=True)
            typer.echo(f"{name}: {len(new.records)} records written")
        else:
            typer.echo(f"{name}: unchanged")
