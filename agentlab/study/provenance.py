"""What results were made with: the code that they depend on, and the versions of packages."""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def code_fingerprint() -> str:
    """Return 16 hexadecimal digits of the code that results depend on (views left out)."""
    root = Path(__file__).parents[1]
    views = {"study/definition.py", "study/leaderboard.py", "study/progress.py", "__init__.py"}
    found = hashlib.blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        if relative not in views and not relative.startswith("views/"):
            found.update(relative.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions that results were made with."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": sys.version.split()[0]}
    for name in ("agentlab-sandbox", "pydantic", "jsonschema-rs", "jmespath"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
