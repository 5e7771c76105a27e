"""`pipeplan regress`: today's answers against recorded ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipeplan.validation.comparison import Find
    from pipeplan.validation.reference_files import ReferenceFile
    from pipeplan.validation.regress import Finding, Verdict

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
    ] = "5s",
    update: Annotated[
        bool, typer.Option("--update", help="Record today's answers, and print what changes.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Compare with recorded answers; exit code 1 where one differs.

    Every backend must meet every reference: the objective where it proves one; where a limit stops
    it, plan and bound must not contradict the record, and it is named and counted as unfinished.
    Only --update writes.
    """
    from pipeplan.cli.errors import EXIT_FALSE
    from pipeplan.cli.output import print_json
    from pipeplan.cli.search import Search, backends_named, one_of_many
    from pipeplan.validation.regress import regress

    search = Search(time_limit=time_limit)
    search.options()  # What is wrong with the limit is not a finding.
    wanted = () if only is None else tuple(only.split(","))
    names = backends_named(backends)

    if update:
        with one_of_many(search) as solved:
            _update(folder, wanted, solved)
        return
    findings: list[Finding] = []
    try:
        with one_of_many(search) as solved:
            for finding in regress(_references(folder, wanted), names, solved):
                findings.append(finding)
                if not as_json and finding.verdict in ("different", "unfinished"):
                    _print(finding)
    finally:  # Ctrl-C too: what was checked is counted.
        if as_json:
            print_json(_document(findings))
        elif findings:
            _summarise(findings)
    if any(x.verdict == "different" for x in findings):
        raise typer.Exit(EXIT_FALSE)


def _counts(findings: "Iterable[Finding]") -> "dict[Verdict, int]":
    from pipeplan.validation.regress import VERDICTS

    found = [x.verdict for x in findings]
    return {verdict: found.count(verdict) for verdict in VERDICTS}


def _document(findings: "list[Finding]") -> dict[str, Any]:
    return {
        "counts": _counts(findings),
        "backends": {name: _counts(group) for name, group in _by_backend(findings).items()},
        "findings": [
            {
                "instance": x.instance,
                "question": x.question,
                "backend": x.backend,
                "verdict": x.verdict,
                "text": x.text,
            }
            for x in findings
        ],
    }


def _by_backend(findings: "list[Finding]") -> "dict[str, list[Finding]]":
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.backend, []).append(finding)
    return groups


def _summarise(findings: "list[Finding]") -> None:
    groups = _by_backend(findings)
    if len(groups) > 1:
        for name, group in groups.items():
            typer.echo(f"{name}: {_sentence(group)}")
    typer.echo(_sentence(findings))


def _sentence(findings: "list[Finding]") -> str:
    counts = _counts(findings)
    return (
        f"{len(findings)} checks: {counts['same']} the same, {counts['tie']} another plan of the "
        f"same price, {counts['unfinished']} stopped by the limit, {counts['cannot']} not taken by "
        f"the backend, {counts['different']} different"
    )


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
    originals = []
    if (place / PIPEDREAM_RECORDS).is_file():
        originals = list(read_pipedream_records(place, only))
    names = {path.stem for path in paths} | {Path(x.instance).name for _, x in originals}
    missing = [x for x in only if x not in names and f"{x}.graph.txt" not in names]
    if missing or not names:
        named = f" of {', '.join(missing)}" if missing else ""
        raise PipeplanError(f"{place} holds no references{named}")
    for path in paths:
        yield path, read_references(path)
    yield from originals


def _print(finding: "Finding") -> None:
    from pipeplan.cli.render.terminal import plain

    line = f"{finding.verdict}: {finding.instance}, {finding.question}, {finding.backend}: "
    typer.echo(plain(line + finding.text).plain)


def _update(folder: Path | None, only: tuple[str, ...], find: "Find") -> None:
    """Answer the questions of every packaged profile again, and write the files that change."""
    import datetime

    from pipeplan.core.errors import PipeplanError
    from pipeplan.core.textfile import write_text
    from pipeplan.core.units import plural
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
        new, changes = record_answers(name, graph, find, old, today)
        for change in changes:
            typer.echo(f"{name}: {change}")
        if new != old and new.records:
            write_text(path, dump_references(new), force=True)
            typer.echo(f"{name}: {plural(len(new.records), 'record')} written")
        else:
            typer.echo(f"{name}: unchanged")
