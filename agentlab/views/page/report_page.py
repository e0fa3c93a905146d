"""The report's frame, style and words; ``report.py`` fills them."""

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
    "normalised": "(success − floor) / (ceiling − floor): 0 is doing nothing, 1 is all that was "
    "possible.",
    "side effects": "Share of runs that changed the world and failed.",
    "recovery": "Share of successes among the runs that met a fault and whose fault-free twin "
    "(same arm, scenario and seed) succeeds.",
    "replans, calls, simulated seconds": "Means a run.",
    "p (Holm)": "Sign-flip permutation over clusters of tasks (exact McNemar for one run a task), "
    "corrected for the number of comparisons.",
}

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
{title}
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --ink: #1b1f24; --quiet: #5c6670; --line: #dfe3e8; --card: #f6f7f9;
  --mark: #0072b2; --note: #fff6e0; --note-line: #e69f00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --ink: #e4e7ea; --quiet: #98a2ad; --line: #2d333a; --card: #1c2026;
    --mark: #56b4e9; --note: #2b2415; --note-line: #b27d0a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 74rem;
  background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 1.15rem; margin: 3rem 0 0.9rem; }
p { margin: 0.6rem 0; max-width: 46rem; }
.quiet { color: var(--quiet); font-size: 0.87rem; }
.facts { display: flex; flex-wrap: wrap; gap: 0.6rem; margin: 1.4rem 0 0; }
.facts div { background: var(--card); border-radius: 8px; padding: 0.55rem 0.9rem; }
.facts dt { color: var(--quiet); font-size: 0.78rem; }
.facts dd { margin: 0; font-weight: 600; font-variant-numeric: tabular-nums; }
aside {
  margin: 1.5rem 0 0; padding: 0.7rem 1rem; background: var(--note);
  border-left: 3px solid var(--note-line); border-radius: 4px; font-size: 0.93rem;
}
aside ul { margin: 0; padding-left: 1.1rem; }
.agentlab-scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.88rem; min-width: 30rem; }
th, td { padding: 0.38rem 0.8rem 0.38rem 0; text-align: left; vertical-align: middle; }
th { color: var(--quiet); font-weight: 500; font-size: 0.8rem; white-space: nowrap; }
thead th { border-bottom: 1px solid var(--line); }
tbody tr + tr td { border-top: 1px solid var(--line); }
td.num, th.num { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.mark { font-size: 0.75rem; color: var(--quiet); }
.mark.best { color: var(--mark); font-weight: 700; }
.heat { display: inline-block; padding: 0.1rem 0.45rem; border-radius: 4px; }
.heat small { opacity: 0.7; }
.interval { display: block; }
.interval .track { stroke: var(--line); stroke-width: 2; }
.interval .bound { stroke: var(--quiet); stroke-width: 1.5; }
.interval .span { stroke: var(--mark); stroke-width: 4; opacity: 0.45; }
.interval circle { fill: var(--mark); }
figure { margin: 1rem 0; overflow-x: auto; color: var(--ink); }
figure svg { max-width: 100%; height: auto; min-width: 26rem; }
figure svg text { font-family: system-ui, -apple-system, "Segoe UI", Arial, sans-serif !important; }
pre {
  background: var(--card); padding: 0.8rem 1rem; border-radius: 6px; overflow-x: auto;
  font: 0.84rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
td pre { margin: 0; max-height: 12rem; overflow: auto; }
.terms dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.45rem 1.5rem; }
.terms dt { font-weight: 600; }
.terms dd { margin: 0; max-width: 46rem; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .terms dl { grid-template-columns: 1fr; gap: 0; }
  .terms dd { margin-bottom: 0.7rem; }
}
"""
