"""Notebooks are committed without outputs; the check that the commit hook runs can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCRIPT = Path(__file__).parent / "notebooks_clean.py"


def _check(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_shipped_notebooks_carry_no_outputs():
    assert _check(*sorted((ROOT / "notebooks").glob("*.ipynb"))).returncode == 0


def test_outputs_are_found(tmp_path):
    cell = {"cell_type": "code", "source": "1", "outputs": [{"text": "1"}], "execution_count": 1}
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": ""}, cell]}))
    found = _check(path)
    assert found.returncode == 1
    assert "cell 1 has outputs" in found.stderr
