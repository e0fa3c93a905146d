"""The report's words; its frame is ``report.html``, its style ``report.css``."""

from __future__ import annotations

LEADERBOARD_TEXT = (
    "Best first, on the tasks that are complete in all arms; runs at fault rate 0 are left out "
    "where there are others. The line is the 95 % interval, the ticks are floor and ceiling of the "
    "same cells."
)
TIED_TEXT = " Tied: not shown to be worse than the best, all pairs of arms counted."
CURVES_TEXT = (
    "Bands are 95 % intervals, clustered by task. Every arm meets the same faults wherever it "
    "makes the same call, and the faults at a low rate are a subset of those at a higher one."
)
COMPARISON_TEXT = (
    "Percentage points, a − b: averaged over seeds within a task, then over tasks; rate 0 is left "
    "out where there are others. A table is one family: interval, p and verdict are adjusted for "
    "all its rows and always agree. The grey bar is what it sees less than 80 % of the time; that "
    "a difference is not shown says no more than that."
)
STOPPED_TEXT = (
    "abort: the strategy gave up. no_plan: the planner found none. no_progress: the same plan in "
    "the same situation twice. replans, executions, ...: that budget was spent."
)
DEFINITIONS = {
    "success": "The scenario's checker finds the goal reached. Runs are averaged within a task "
    "(a scenario) first, then over tasks; a crashed run is a failure.",
    "95 % interval": "Of a share: Wilson's with an effective number of observations and a t "
    "quantile, both from clusters of tasks (Korn and Graubard 1998; Bell and McCaffrey 2002). Of "
    "other means: cluster-robust t (CR3).",
    "fault rate, faults/call": "The rate is the chance that a call meets a new fault. One that "
    "stands meets every later call to its tool too, so that faults delivered a call may be more; "
    "where none stand they are about as many.",
    "floor, ceiling": "What doing nothing reaches, and what any sequence of calls could have "
    "reached under the same faults, found by search.",
    "search (planner)": "A model-based planner: it plans with the world's own model (A* over what "
    "the agent believes).",
    "normalised": "(success − floor) / (ceiling − floor): 0 is doing nothing, 1 is all that was "
    "possible.",
    "side effects": "Share of runs that changed the world and failed.",
    "fault-free": "Success of the fault-free twins: same arm, scenario and seed.",
    "recovery, on common": "Share of successes among the runs that met a fault and whose "
    "fault-free twin succeeds; on the arm's own cells, and on those that count for every arm.",
    "replans, calls, simulated seconds": "Means a run.",
    "p, interval, verdict": "Single-step max-T over common sign flips of clusters, all rows of the "
    "table at once (Westfall and Young 1993; Romano and Wolf 2005).",
    "crashed, no answer": "A run that raised is a failure. One to which a model gave no answer "
    "(denied, unknown, unavailable, rate limited, timed out) measured nothing and is left out.",
}
