"""README.md of a package: what runs where, and the commands for one machine and for several."""

from pipeplan.codegen.names import comment
from pipeplan.codegen.program import Program
from pipeplan.codegen.rank_table import ranges
from pipeplan.codegen.stages import StageProgram
from pipeplan.core.codec import PlanFile
from pipeplan.core.units import format_bytes, format_ms, plural

__all__ = ["readme"]


def readme(
    file: PlanFile,
    program: Program,
    stages: tuple[StageProgram, ...],
    micro_batches: int,
    notes: list[str],
) -> str:
    """The text; every figure in it is the plan's."""
    problem, plan, price = file.problem, file.plan, file.evaluation
    cluster = problem.cluster
    name = comment(program.name, 60).replace("`", "'") or "the network"
    lines = [
        f"# {name}: {plural(len(stages), 'stage')} on {plan.devices} of "
        f"{plural(cluster.devices, 'device')}",
        "",
        "| stage | layers | replicas | ranks | compute | peak memory a rank |",
        "|---|---|---|---|---|---|",
    ]
    for stage, placed, times, memory in zip(
        stages, plan.stages, price.topology.stages, price.memory, strict=True
    ):
        first, last = (
            comment(x, 40).replace("|", "/") for x in (stage.layers[0], stage.layers[-1])
        )
        span = first if first == last else f"{len(stage.layers)}: {first} to {last}"
        lines.append(
            f"| {stage.index} | {span} | {placed.replicas} | {ranges(placed.ranks)} | "
            f"{format_ms(times.compute_ms)} | {format_bytes(memory.peak_bytes)} |"
        )
    per_host, hosts = cluster.devices_per_server, cluster.servers
    lines += ["", f"Predicted time per micro-batch: {format_ms(price.topology.period_ms)}.", ""]
    lines += ["## Run it", ""]
    if hosts == 1:
        lines += ["On one machine (`--device cpu` where it has no GPUs):", ""]
    else:
        lines += [
            f"Ranks are numbered server by server: rank r is GPU r % {per_host} of server "
            f"r // {per_host}.",
            f"On server I = 0 to {hosts - 1}, with the address of server 0 as HOST:",
            "",
            _block(
                f"torchrun --nnodes={hosts} --nproc-per-node={per_host} --node-rank=I \\\n"
                "    --master-addr=HOST --master-port=29500 train.py --steps 100"
            ),
            "",
            f"{plural(cluster.devices, 'rank')} on one machine, for a try (`--device cpu` needs no "
            "GPU):",
            "",
        ]
    lines += [
        _block(f"torchrun --standalone --nproc-per-node={cluster.devices} train.py --steps 100"),
        "",
        "or, with times beside the predicted ones: `pipeplan run . --steps 100`.",
        "",
        "## What is where",
        "",
        "- `stage_N.py`: the module of each stage. `Stage().load_state_dict(...)` takes the "
        "stage's own state, or picks its part out of the original's.",
        "- `train.py`: data, loss and optimizer, to be edited; "
        f"a batch is {plural(micro_batches, 'micro-batch')} unless "
        "`--micro-batches` says otherwise.",
        "- `rank_map.json`: stage, replica, server and peers of every rank.",
        "- `hybrid_conf.json`, `mp_conf.json`, `dp_conf.json`: this plan, one rank a stage, and "
        "data parallel, as PipeDream's runtime reads them.",
        "- `plan.json`: the plan and everything it was computed from (`pipeplan show plan.json`).",
        "- `package.json`: what the runtime needs to know.",
        "",
        "`pipeplan verify .` checks that the stages together compute what the original does.",
    ]
    if program.factory:
        lines += [
            "",
            f"The original is made by `{program.factory}`, which must be importable: stages start "
            "from its weights.",
        ]
    if problem.schedule == "pipedream":
        lines += [
            "",
            "The plan is for the asynchronous schedule `pipedream`; this runtime is synchronous "
            "and runs it as 1f1b, one flush a batch.",
        ]
    lines += ["", *(f"- {x}" for x in notes)] if notes else []
    return "\n".join(lines) + "\n"


def _block(text: str) -> str:
    return f"```sh\n{text}\n```"
