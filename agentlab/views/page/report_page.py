"""The report's words; its frame is ``report.html``, its style ``report.css``."""

from __future__ import annotations

LEADERBOARD_TEXT = (
    "Best first. The line is the 95 % interval, the ticks are floor and ceiling of the same cells. "
    "Tied: the comparison with the best arm, paired by task and corrected for their number (Holm), "
    "shows no difference."
)
CURVES_TEXT = (
    "Bands are 95 % intervals, clustered by task. Every arm meets the same faults wherever it "
    "makes the same call, and the faults at a low rate are a subset of those at a higher one."
)
COMPARISON_TEXT = (
    "Percentage points, a − b: averaged over seeds within a task, then over tasks. “Smallest "
    "visible” is the difference that this study would have seen in 80 % of repetitions (the grey "
    "bar); a tie says no more than that."
)
STOPPED_TEXT = (
    "abort: the strategy gave up. no_plan: the planner found none. no_progress: the same plan in "
    "the same situation twice. replans, executions, ...: that budget was spent."
)
DEFINITIONS = {
    "success": "The scenario's checker finds the goal reached. Runs are averaged within a task "
    "(a scenario) first, then over tasks; a crashed run is a failure.",
    "95 % interval": "Cluster-robust t interval over tasks (Miller 2024, arXiv 2411.00640); where "
    "all tasks agree, Wilson's.",
    "floor, ceiling": "What doing nothing reaches, and what any sequence of calls could have "
    "reached under the same faults, found by search.",
    "search (planner)": "A model-based planner: it plans with the world's own model (A* over what "
    "the agent believes).",
    "normalised": "(success − floor) / (ceiling − floor): 0 is doing nothing, 1 is all that was "
    "possible.",
    "side effects": "Share of runs that changed the world and failed.",
    "recovery": "Share of successes among the runs that met a fault and whose fault-free twin "
    "(same arm, scenario and seed) succeeds.",
    "replans, calls, simulated seconds": "Means a run.",
    "p (Holm)": "Sign-flip permutation over clusters of tasks (exact McNemar for one run a task), "
    "corrected for the number of comparisons.",
}
