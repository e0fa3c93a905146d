"""Refuse notebooks that carry outputs or execution counts: ``notebooks_clean.py FILE...``."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def dirty(path: Path) -> list[str]:
    """Return what a notebook carries that it should not."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        f"{path}: cell {i} has outputs"
        for i, cell in enumerate(cells)
        if cell.get("outputs") or cell.get("execution_count")
    ]


if __name__ == "__main__":
    found = [line for name in sys.argv[1:] for line in dirty(Path(name))]
    sys.stderr.write("\n".join(found) + ("\n" if found else ""))
    sys.exit(bool(found))
