"""The page: a template, a style, a script and the data, in one file that fetches nothing.

Text from a profile reaches the browser inside a JSON block that no markup can end, and is only
ever written as text. The content security policy allows this one script, by its hash, and nothing
from anywhere else.
"""

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any

__all__ = ["embedded_json", "render_page"]


def embedded_json(value: Any) -> str:
    """JSON that is safe inside a script element: no <, no >, no &, no line separators of JS."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # Lone surrogates cannot be written as UTF-8, and JSON may hold them.
    return "".join(x if not 0xD800 <= ord(x) <= 0xDFFF else f"\\u{ord(x):04x}" for x in text)


def render_page(data: dict[str, Any], drawings: tuple[str, ...] = ()) -> str:
    """The HTML text; `drawings` are SVG texts of our own, whose strings are escaped."""
    parts = {name: _part(name) for name in ("page.html", "page.css", "page.js")}
    policy = (
        f"default-src 'none'; script-src '{_hash(parts['page.js'])}'; "
        f"style-src '{_hash(parts['page.css'])}'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )
    values = {
        "TITLE": html.escape(_title(data)),
        "POLICY": html.escape(policy),
        "STYLE": parts["page.css"],
        "SCRIPT": parts["page.js"],
        "DATA": embedded_json(data),
        "DRAWINGS": "\n".join(f'<figure class="drawing">{x}</figure>' for x in drawings),
        "HEADLINE": html.escape(_clean(str(data["headline"]))),
    }
    out: list[str] = []
    for piece in parts["page.html"].split("{{"):
        name, closed, rest = piece.partition("}}")
        out.append(values[name] + rest if closed else piece)
    return "".join(out)


def _part(name: str) -> str:
    return files("pipeplan.validation.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()


def _clean(text: str) -> str:
    return "".join(x if x.isprintable() else "\N{REPLACEMENT CHARACTER}" for x in text)


def _title(data: dict[str, Any]) -> str:
    return f"{_clean(str(data['name']))[:80]} - pipeplan"
