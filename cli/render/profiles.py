"""The list of packaged profiles."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeplan.cli.render.terminal import plain
from pipeplan.core.units import format_bytes
from pipeplan.models.profiles import ProfileSummary

__all__ = ["profiles_table"]


def profiles_table(profiles: Sequence[ProfileSummary]) -> RenderableType:
    """One row a profile, and how to use one."""
    if not profiles:
        return Text("no profiles are packaged with this installation")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for name in ("name", "layers", "parameters", "micro-\nbatch", "device"):
        table.add_column(name, justify="left" if name in ("name", "device") else "right")
    table.add_column("what it is", overflow="fold")
    for x in profiles:
        table.add_row(
            plain(x.name),
            str(x.layers),
            format_bytes(x.parameter_bytes),
            str(x.batch),
            plain(x.device),
            plain(x.description),
        )
    names = [x.name for x in profiles]
    first = "vgg16" if "vgg16" in names else names[0]
    return Group(
        table,
        Text(),
        Text(f"Plan one on 2 servers of 8 GPUs: pipeplan solve {first} -n 8 2 -b 4GiB/s 2GiB/s"),
    )
