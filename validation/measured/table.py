"""The rows as Markdown: periods first, then where the time of each stage goes."""

from collections.abc import Sequence

from pipeplan.validation.measured.runs import Row

__all__ = ["tables"]

_PERIODS = (
    "| work | schedule | replicas | predicted ms | simulated ms | measured ms | of the steps | "
    "differs | batch predicted ms | batch measured ms | differs |"
)
_STAGES = (
    "| work | schedule | replicas | stage | forward ms | backward ms | waiting ms | sending ms | "
    "all-reduce ms | update ms | message ms |"
)


def tables(found: Sequence[Row], within: float) -> list[str]:
    """A sentence, and both tables; `within` is the error that known times may have."""
    known = [row for row in found if row.case.known]
    others = [row for row in found if not row.case.known]
    lines: list[str] = []
    if known:
        met = sum(abs(row.error) <= within for row in known)
        worst = max((abs(row.error) for row in known), default=0.0)
        lines.append(
            f"Of {len(known)} plans of layers that sleep for known times {met} run within "
            f"{100 * within:g} % of the predicted period; the largest difference is "
            f"{100 * worst:.1f} %."
        )
    if others:
        errors = sorted(row.error for row in others)
        lines.append(
            f"The {len(others)} plans of networks that compute differ by {_percent(errors[0])} to "
            f"{_percent(errors[-1])}, in the median {_percent(errors[len(errors) // 2])}."
        )
    lines += ["", _PERIODS, _rule(_PERIODS), *(_period_line(row) for row in found)]
    lines += ["", "Measured / predicted, per micro-batch of the pipeline:"]
    lines += ["", _STAGES, _rule(_STAGES), *(x for row in found for x in _stage_lines(row))]
    return lines


def _rule(head: str) -> str:
    return "|" + "---|" * (head.count("|") - 1)


def _named(row: Row) -> str:
    replicas = "-".join(map(str, row.case.replicas))
    return f"| {row.case.name} | {row.case.problem.schedule} | {replicas} |"


def _period_line(row: Row) -> str:
    run = row.run
    simulated = "-" if row.simulated_ms is None else f"{row.simulated_ms:.2f}"
    spread = f"{min(run.periods_ms):.2f} to {max(run.periods_ms):.2f}"
    assert run.step_ms is not None  # there is a period, so there are steps
    return (
        f"{_named(row)} {row.floor_ms:.2f} | {simulated} | {row.period_ms:.2f} | {spread} | "
        f"{_percent(row.error)} | {run.predicted_step_ms:.1f} | {run.step_ms:.1f} | "
        f"{_percent(run.step_ms / run.predicted_step_ms - 1)} |"
    )


def _stage_lines(row: Row) -> list[str]:
    out = []
    cuts = {cut.stage: cut for cut in row.run.cuts}
    for x in row.run.stages:
        cut = cuts.get(x.stage)
        message = "" if cut is None else _pair(cut.activation_ms, cut.predicted_ms)
        out.append(
            f"{_named(row)} {x.stage} | {_pair(x.forward_ms, x.predicted_forward_ms)} | "
            f"{_pair(x.backward_ms, x.predicted_backward_ms)} | "
            f"{_pair(x.wait_ms, x.predicted_wait_ms)} | {_one(x.send_ms)} | "
            f"{_pair(x.sync_ms, x.predicted_sync_ms)} | {_one(x.update_ms)} | {message} |"
        )
    return out


def _one(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _pair(measured: float | None, predicted: float) -> str:
    return f"{_one(measured)} / {predicted:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share + 0.0:+.1f} %"
