"""The fidelity table: its rows, its verdict, and the page that holds it."""

from pathlib import Path

import pytest

from pipeplan.validation.fidelity import COMMAND, Row, main, summary, table
from pipeplan.validation.page_table import table_lines
from pipeplan.validation.suite import CLUSTERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fidelity.md"


def row(simulated: float | None, more: int | None = 0, *, exact: bool = True) -> Row:
    return Row("net", "4 GPUs", "1f1b", "OPTIMAL", (3, 1), 10.0, 10.0, simulated, exact, more)


def test_below_is_a_fault_and_rounding_is_not() -> None:
    assert row(9.99).below
    assert row(9.98, exact=False).below
    assert not row(10.0 * (1 - 1e-12)).below
    assert not row(12.0).below
    assert not row(None).below


def test_rows_and_summary_as_markdown() -> None:
    found = [row(10.05), row(12.0, 2), row(11.0, None), row(None, None)]
    lines = table(found)
    assert "| net | 4 GPUs | 1f1b | 3-1 | 10.0000 | 10.0500 | +0.50 % |  | 0 |" in lines
    assert "| net | 4 GPUs | 1f1b | 3-1 | 10.0000 | 12.0000 | +20.00 % |  | 2 |" in lines
    assert "| net | 4 GPUs | 1f1b | 3-1 | 10.0000 | - | - |  | none |" in lines
    said = summary(found)
    assert "Of 4 plans 1 are simulated within 1 %" in said
    assert "0 below" in said
    assert "1 need more" in said
    assert "2 do not reach it" in said


def test_one_command_replaces_the_table_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "fidelity.md"
    page.write_text(PAGE.read_text())
    monkeypatch.setattr("pipeplan.validation.suite.CLUSTERS", CLUSTERS[:1])
    assert main(["--only", "resnet18", "--write", str(page)]) == 0
    text = page.read_text()
    assert text.count("| resnet18 | 4 GPUs, 10 GB/s |") == 3
    assert text.splitlines()[0] == PAGE.read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "resnet18", "--write", "none.md"], "no such file"),
        (["--only", "resnet18", "--write", "page.md"], "there is no table between"),
        (["--only", "resnet18,nosuch"], "'nosuch'"),
    ],
)
def test_bad_input_ends_with_2_before_anything_is_solved(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "page.md").write_text("no table\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipeplan.validation.fidelity.solve", None)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_the_page_claims_no_simulation_below_its_prediction() -> None:
    rows = [x.split("|") for x in table_lines(PAGE, COMMAND) if x.startswith("| ")]
    shown = [x[7].strip() for x in rows if x[7].strip().endswith("%")]
    assert len(shown) >= 12
    # As `Row.below` has it: an average of a run that does not repeat itself may be 0.1 % off.
    assert all(float(x.removesuffix("%")) >= -0.1 for x in shown)
