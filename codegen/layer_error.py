"""What is wrong with a layer, and where in the profile's file that layer stands."""

import json
import re
from pathlib import Path

from pipeplan.core.errors import ProfileError

__all__ = ["LayerError", "located"]


class LayerError(ProfileError):
    """A layer cannot be turned into code; `layer` is its id, `text` the offending text."""

    def __init__(self, layer: str, message: str, text: str | None = None) -> None:
        self.layer = layer
        super().__init__(f"layer {layer}: {message}", text=text)


def located(error: LayerError, path: Path, profile: str) -> ProfileError:
    """The same complaint with the file, and the line on which the layer is described."""
    name = re.escape(error.layer)
    quoted = re.escape(json.dumps(error.layer, ensure_ascii=False))
    match = re.search(rf'^[ \t]*{name}[ \t]+--|"id"\s*:\s*{quoted}', profile, re.MULTILINE)
    line = None if match is None else profile.count("\n", 0, match.end()) + 1
    return ProfileError(error.message, path=path, line=line, text=error.text)
