"""Run every benchmark, each in a process of its own, and print one table.

``--before REV`` measures an earlier revision beside the working tree: it is checked out into a
folder of its own, each benchmark runs on either in turn, and the table says before : after.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import Row, compared, load, table

HERE = Path(__file__).resolve().parent
BENCHMARKS = (
    "engine", "durable", "long", "throughput", "lm", "frames", "parallel", "imports", "contract",
)  # fmt: skip


def rows(name: str, tree: Path) -> list[Row]:
    """Return the rows of one benchmark, on the package in this tree."""
    done = subprocess.run(
        [sys.executable, str(HERE / f"{name}.py"), "--json"], stdout=subprocess.PIPE, text=True,
        check=True, env={**os.environ, "PYTHONPATH": str(tree)},
    )  # fmt: skip
    return [Row(**json.loads(line)) for line in done.stdout.splitlines()]


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Check a revision out into a folder of its own, which goes again afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def against(revision: str, names: list[str], rounds: int) -> int:
    """Print before : after for every figure; 1 when one is slower by more than a twentieth."""
    slower = False
    with checked_out(revision) as before:
        for name in names:
            pairs: list[tuple[list[Row], list[Row]]] = []
            for turn in range(rounds):
                print(f"{name}, {turn + 1} of {rounds} ... {load()}", file=sys.stderr)
                pairs.append((rows(name, before), rows(name, HERE.parent)))
            text, worse = compared(pairs)
            print(text, flush=True)
            slower |= worse
    return int(slower)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="benchmark", help=", ".join(BENCHMARKS))
    parser.add_argument("--before", metavar="REV", help="a revision to compare with")
    parser.add_argument("--rounds", type=int, default=3, help="of each, with --before")
    asked = parser.parse_args()
    names = asked.names or list(BENCHMARKS)
    if asked.before:
        return against(asked.before, names, asked.rounds)
    found: list[Row] = []
    for name in names:
        print(f"{name} ... {load()}", file=sys.stderr)
        found += rows(name, HERE.parent)
    print(table(found))
    missed = [r.what for r in found if r.met is False]
    print(f"\n{load()}; " + (f"missed: {'; '.join(missed)}" if missed else "every target met"))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
