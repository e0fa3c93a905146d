"""A reduced grid of the tables that ``agentlab calibrate`` prints: what is promised is kept."""

from __future__ import annotations

import numpy as np
import pytest

from agentlab.study import calibration
from agentlab.study.calibration import Measured
from agentlab.study.family import Family

REPETITIONS = 250
BOUNDS = {
    "a share's interval holds": (0.92, 1.0),
    "a pair's own interval holds": (0.91, 1.0),
    "any wrong verdict": (0.0, 0.05),
    "all intervals hold": (0.95, 1.0),
    "power at the visible difference": (0.75, 0.92),
}


@pytest.fixture(scope="module")
def table() -> list[Measured]:
    return list(calibration.measured(REPETITIONS, reduced=True))


@pytest.mark.parametrize("name", BOUNDS)
def test_every_row_keeps_its_promise(table, name):
    rows = [row for row in table if row.table == name]
    assert rows
    low, high = BOUNDS[name]
    for row in rows:
        chance = 3 * np.sqrt(0.25 * 0.36 / row.repetitions)  # three standard errors at 10 %
        assert low - chance <= row.value <= high + chance, row


def test_a_wrong_procedure_would_be_seen(monkeypatch):
    """The tables measure: with clusters ignored, or each pair tested alone, they say so."""
    shares = calibration.stats.share_interval
    monkeypatch.setattr(
        calibration.stats, "share_interval", lambda y, clusters, runs: shares(y, None, runs=runs)
    )
    assert calibration.share_coverage(0.5, 0.5, "equal", 1, 20, 200) < 0.88
    tested = calibration.family

    def alone(differences, sizes, **options):
        found = [tested(differences[:, [i]], sizes[:, [i]], **options)
                 for i in range(differences.shape[1])]  # fmt: skip
        joined = [np.concatenate([getattr(f, name) for f in found])
                  for name in ("diff", "low", "high", "p", "shown", "n_clusters")]  # fmt: skip
        return Family(*joined)

    monkeypatch.setattr(calibration, "family", alone)
    assert calibration.wrong_verdicts(12, 6, 200) > 0.12


def test_tasks_of_a_cluster_are_as_alike_as_was_asked():
    rng = np.random.default_rng(0)
    sizes = np.full(2000, 2)
    for seeds in (1, 5):
        means, _ = calibration.task_means(0.3, 0.4, sizes, seeds, rng)
        pairs = means.reshape(-1, 2)
        assert np.corrcoef(pairs.T)[0, 1] == pytest.approx(0.4, abs=0.06)
        assert means.mean() == pytest.approx(0.3, abs=0.03)
