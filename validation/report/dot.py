"""The layer graph as Graphviz DOT: a cluster a stage, cut edges marked."""

from pipeplan.core.codec import PlanFile
from pipeplan.core.units import format_bytes, format_ms
from pipeplan.validation.palette import stage_colour, text_colour

__all__ = ["dot"]


def _quoted(text: str) -> str:
    """A DOT string; a backslash would start an escape such as \\N, so it is doubled."""
    clean = "".join(x if x.isprintable() else "\N{REPLACEMENT CHARACTER}" for x in text)
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'


def dot(file: PlanFile) -> str:
    """The text of a digraph; the order is that of the layers."""
    graph, plan = file.problem.graph, file.plan
    stage_of = plan.stage_of_layer
    lines = [
        f"digraph {_quoted(graph.name or 'plan')} {{",
        "  rankdir=LR;",
        '  node [shape=box, style=filled, fontname="sans-serif", fontsize=10];',
    ]
    for s, stage in enumerate(plan.stages):
        label = f"stage {s} x{stage.replicas}"
        lines += [f"  subgraph cluster_{s} {{", f"    label={_quoted(label)};"]
        for v in stage.layers:
            layer = graph.layers[v]
            text = f"{layer.id}: {layer.description}"[:80] if layer.description else layer.id
            lines.append(
                f"    n{v} [label={_quoted(text)}, tooltip={_quoted(format_ms(layer.compute_ms))}, "
                f'fillcolor="{stage_colour(s)}", fontcolor="{text_colour(s)}"];'
            )
        lines.append("  }")
    for a, b in graph.edges:
        size = format_bytes(graph.layers[a].output_bytes)
        cut = f' [style=dashed, penwidth=2, label="{size}"]' if stage_of[a] != stage_of[b] else ""
        lines.append(f"  n{a} -> n{b}{cut};")
    return "\n".join([*lines, "}"]) + "\n"
