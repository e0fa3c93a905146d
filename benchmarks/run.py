"""Run every benchmark, each in a process of its own, and print one table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from measure import Row, load, table

BENCHMARKS = (
    "engine", "durable", "throughput", "lm", "frames", "parallel", "imports", "contract",
)  # fmt: skip


def rows(name: str) -> list[Row]:
    """Return the rows of one benchmark."""
    script = Path(__file__).with_name(f"{name}.py")
    done = subprocess.run(
        [sys.executable, str(script), "--json"], stdout=subprocess.PIPE, text=True, check=True
    )
    return [Row(**json.loads(line)) for line in done.stdout.splitlines()]


def main() -> int:
    found: list[Row] = []
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"{name} ... {load()}", file=sys.stderr)
        found += rows(name)
    print(table(found))
    missed = [r.what for r in found if r.met is False]
    print(f"\n{load()}; " + (f"missed: {'; '.join(missed)}" if missed else "every target met"))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
