"""A small writer of SVG text: elements with escaped attributes and text, nothing else."""

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

__all__ = ["element", "number", "svg_document", "text"]


def number(value: float) -> str:
    """A coordinate: two decimals are below a hundredth of a pixel's visibility."""
    shown = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if shown in ("-0", "") else shown


def element(name: str, *children: str, **attributes: str | float) -> str:
    """One element; `_` in a keyword stands for `-`, a trailing one is dropped."""
    shown = "".join(
        f" {key.rstrip('_').replace('_', '-')}="
        + quoteattr(value if isinstance(value, str) else number(value))
        for key, value in attributes.items()
    )
    return f"<{name}{shown}>{''.join(children)}</{name}>" if children else f"<{name}{shown}/>"


def text(content: str, **attributes: str | float) -> str:
    """A text element; characters that XML does not allow are replaced."""
    clean = "".join(x if x.isprintable() else "\N{REPLACEMENT CHARACTER}" for x in content)
    return element("text", escape(clean), **attributes)


def svg_document(width: float, height: float, parts: Iterable[str], *, title: str) -> str:
    """A whole file, readable on light and dark backgrounds: it paints its own paper."""
    inside = "\n".join(parts)
    size = f'width="{number(width)}" height="{number(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {number(width)} {number(height)}" role="img" aria-label={quoteattr(title)} '
        'font-family="system-ui, sans-serif" font-size="12" fill="#1b1f24">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{inside}\n</svg>\n'
    )
