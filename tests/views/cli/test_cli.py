"""The command line: what it prints, where it writes, and how it ends when something is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import agentlab as al
from agentlab.environments.suites import load_suite
from agentlab.study import cells
from agentlab.study.definition import spread
from agentlab.trace.store import Store
from agentlab.views.cli import terminal
from agentlab.views.cli.cli import app
from agentlab.views.cli.results import PLOT

COMMAND = [sys.executable, "-c", "from agentlab.views.cli.cli import main; main()"]
SMALL = ["--planner", "search", "--seeds", "1", "--processes", "1", "--limit", "3"]


def run(*words: str, width: int = 80) -> Any:
    """Invoke a command in this process."""
    found = CliRunner(env={"COLUMNS": str(width)}).invoke(app, list(words))
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def start(*words: str, **options: Any) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, as a terminal does."""
    return subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, **options,
    )  # fmt: skip


def refused(found: Any, code: int = 2) -> str:
    """Check that a command ended with one message, and return it."""
    exit_code = getattr(found, "exit_code", getattr(found, "returncode", None))
    assert exit_code == code, found.stderr
    assert "Traceback" not in found.stderr
    [message] = found.stderr.splitlines()
    return message


def cell_counts(folder: Path) -> tuple[int, int]:
    """Return how many cells were written, and how many different ones."""
    connection = sqlite3.connect(f"file:{folder}/study.db?mode=ro", uri=True)
    found = connection.execute("SELECT count(*), count(DISTINCT cell) FROM cells").fetchone()
    connection.close()
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A finished study of 72 runs."""
    folder = tmp_path_factory.mktemp("cli") / "results"
    found = run("eval", "quickstart", *SMALL[:-2], "--limit", "6", "--out", str(folder))
    assert found.exit_code == 0, found.output
    return folder


# ---- eval ----------------------------------------------------------------------------------


def test_eval_says_who_won_and_where_it_lies(tmp_path):
    found = run("eval", "chain", *SMALL, "--out", str(tmp_path / "r"), "--report")
    assert found.exit_code == 0
    assert found.stderr == ""
    out = found.stdout
    assert "4 arms × 3 scenarios of chain × 3 fault rates × 1 seed = 36 runs" in out
    for word in ("best", "success", "floor", "ceil.", "retry_then_replan(2)", "95 % interval"):
        assert word in out
    assert re.search(r"search × never +█+", out)
    assert (tmp_path / "r" / PLOT).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "r" / "report.html").is_file()
    assert f"agentlab show {tmp_path / 'r'} --failed" in out


def test_eval_fits_eighty_columns_and_holds_no_control_characters(tmp_path):
    found = run("eval", "quickstart", "--limit", "2", *SMALL[2:-2], "--out", str(tmp_path))
    tables = found.stdout.split("results ")[0]
    assert max(map(len, tables.splitlines())) <= 80
    assert all(c.isprintable() or c == "\n" for c in found.stdout)
    assert not [text for text in found.stdout.splitlines() if text != text.rstrip()]
    assert "reference(noise=0.2) × retry_then_replan(2)" in found.stdout


def test_a_wide_terminal_shows_more(tmp_path):
    words = ("eval", "chain", *SMALL, "--out", str(tmp_path))
    narrow = " ".join(run(*words).stdout.split())
    assert "Left out for lack of room: norm., side eff., replans" in narrow
    assert "agentlab report" in narrow
    wide = run(*words, width=140).stdout
    assert "side eff." in wide
    assert "Left out" not in wide


def test_show_of_a_study_without_runs_says_so(tmp_path):
    study = al.Study(al.grid(), "chain", seeds=1, out=tmp_path)
    with Store(tmp_path) as store:
        study._register(store, False)
    done = run("show", str(tmp_path))
    assert done.exit_code == 0
    assert "no run is finished yet" in done.stdout


def test_show_takes_several_arms_and_names_the_nearest_unknown_one(results):
    missed = run("show", str(results), "--arm", "nevr")
    assert missed.exit_code == 2
    assert "unknown arm 'nevr'" in missed.stderr
    both = run("show", str(results), "--arm", "never,retry(2)", "--limit", "400").stdout
    assert "never" in both
    assert "end of plan" in both


def test_the_same_command_goes_on_and_a_larger_grid_adds(tmp_path):
    words = ("eval", "chain", *SMALL[:-1], "2", "--out", str(tmp_path))
    first = run(*words)
    before = cell_counts(tmp_path)
    assert run(*words).stdout == first.stdout
    assert cell_counts(tmp_path) == before
    run(*words[:-3], "3", *words[-2:])
    more, different = cell_counts(tmp_path)
    assert more == different > before[0]


def test_options_reach_the_study(tmp_path, monkeypatch):
    told = {}

    def note(self, **options):
        told.update(options, study=self)
        raise KeyboardInterrupt

    monkeypatch.setattr(al.Study, "run", note)
    definition = tmp_path / "s.yaml"
    definition.write_text("suite: chain\nplanner: search\nstrategy: never\nseeds: 2\n")
    monkeypatch.setattr(signal, "signal", lambda *arguments: None)
    found = run(
        "eval", str(definition), "--strategy", "retry(1)", "--strategy", "retry(2)", "--strategy",
        "retry(1)", "--faults", "silent", "--workers", "2", "--no-controls", "--allow-mixed",
        "--retry-crashed", "--processes", "1", "--fault-rate", "0.5", "--limit", "4",
    )  # fmt: skip
    assert found.exit_code == 130
    assert told["processes"] == 1
    assert told["allow_mixed"]
    assert told["retry_failed"]
    assert told["max_lm_errors"] == 10
    study = told["study"]
    assert [a.label for a in study.arms] == [
        "search × retry(1) × workers=2", "search × retry(2) × workers=2"
    ]  # fmt: skip
    assert (study.seeds, study.fault_rates, len(study.suite)) == ((0, 1), (0.5,), 4)
    assert not study.controls
    assert study.faults == al.FaultPlan(kinds=study.faults.kinds, visibility={"silent": 1.0})
    assert study.out == Path("results/s")


def test_numbers_and_workflows_are_listed_by_commas_or_one_by_one(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(al.Study, "run", lambda self, **o: made.append(self) or 1 / 0)
    start = ["eval", "chain", "--planner", "search", "--strategy", "never"]
    listed = {"--workers": "1,2", "--workflow": "autonomous, resident", "--fault-rate": "0,0.1"}
    single = {k: v.replace(" ", "").split(",") for k, v in listed.items()}
    for words in (
        [word for pair in listed.items() for word in pair],
        [word for name, values in single.items() for v in values for word in (name, v)],
    ):
        with pytest.raises(ZeroDivisionError):
            run(*start, *words)
    by_commas, one_by_one = made
    assert by_commas.definition() == one_by_one.definition()
    assert len(by_commas.arms) == 4
    assert by_commas.fault_rates == (0, 0.1)


def test_crashed_runs_are_noted_and_run_again_when_asked(tmp_path, monkeypatch):
    words = ("eval", "chain", *SMALL, "--strategy", "never", "--out", str(tmp_path))

    def crash(runner, cell):
        raise RuntimeError("[red]on fire\x1b[2J")

    with monkeypatch.context() as patched:
        patched.setattr(cells.Runner, "_started", crash)
        found = run(*words)
    assert found.exit_code == 0
    assert "note: 9 runs crashed and count as failures (--retry-failed)." in found.stdout
    listing = run("show", str(tmp_path), "--failed").stdout
    key = listing.splitlines()[1].split()[0]
    shown = run("show", str(tmp_path), key).stdout
    assert "[red]on fire\\x1b[2J" in shown
    assert 'raise RuntimeError("[red]on fire' in shown  # the traceback, told to whoever asks
    assert "note: 9 runs crashed" not in run(*words, "--retry-crashed").stdout


def test_results_of_other_code_are_refused_unless_asked(tmp_path):
    words = ("eval", "chain", *SMALL, "--strategy", "never", "--out", str(tmp_path))
    run(*words)
    with Store(tmp_path) as store:
        store.add_meta(code=["0" * 16])
    assert "--allow-mixed" in refused(run(*words))
    found = run(*words, "--allow-mixed")
    assert found.exit_code == 0
    assert "made by 2 versions of the code" in " ".join(found.stdout.split())


# ---- looking into results ------------------------------------------------------------------


def test_show_lists_runs(results):
    found = run("show", str(results), "--limit", "5")
    assert len(found.stdout.splitlines()) == 7
    assert "5 of 72 runs" in found.stdout
    failed = run("show", str(results), "--failed", "--limit", "99").stdout
    assert "✓" not in failed
    assert "✗" in failed
    some = run("show", str(results), "--arm", "retry(2)", "--scenario", "chain").stdout
    assert "never" not in some
    assert "travel" not in some


def test_show_tells_a_run(results):
    study = al.Study.open(results)
    runs = study.runs
    wanted = runs[(runs["replans"] > 0) & (runs["faults_delivered"] > 0)].iloc[0]
    found = run("show", str(results), wanted["cell"][:12]).stdout
    assert wanted["scenario"] in found
    assert wanted["arm"] in found
    for word in ("plan (initial)", "plan (remaining)", "fault:", "decision REPLAN_REMAINING"):
        assert word in found
    assert "final response" in found
    assert ("goal reached" if wanted["success"] else "goal missed") in found
    for span in study.trace(wanted["cell"]):
        if span.kind == "step":
            assert f"{span.step_id}  attempt {span.attempt}" in found
    assert "…" in found
    full = run("show", str(results), wanted["cell"], "--full").stdout
    assert "…" not in full.partition("final response")[0]  # the response itself cuts long results


def test_show_prints_text_of_others_as_it_is(tmp_path):
    plain = load_suite("chain")[0]
    text = "[bold]x[/nonsense] \x1b]0;evil\x07 \u202e :boom:"
    scenario = plain.replace(id="[red]s[/]\x1b[2J", task=text)
    study = al.Study(al.Arm(), [scenario], seeds=1, out=tmp_path)
    key = study.run(processes=1, progress=False)["cell"][0]
    found = run("show", str(tmp_path), key).stdout
    assert "[bold]x[/nonsense] \\x1b]0;evil\\x07 \\u202e :boom:" in " ".join(found.split())
    assert "[red]s[/]\\x1b[2J" in found + run("show", str(tmp_path)).stdout


def test_replay_is_identical_or_says_where_not(results, tmp_path):
    key = al.Study.open(results).runs["cell"][0]
    found = run("replay", str(results), key)
    assert found.exit_code == 0
    assert re.match(r"identical: (\d+) of \1 visits identical", found.stdout)

    suite = spread(load_suite("chain"), 1)
    study = al.Study(al.Arm(), suite, seeds=1, out=tmp_path)
    key = study.run(processes=1, progress=False)["cell"][0]
    with Store(tmp_path) as store:  # the same cell again, with one span recorded otherwise
        from agentlab.trace.packing import pack_spans
        from agentlab.trace.stored import CellResult

        spans = store.trace(key)
        next(s for s in spans if s.kind == "tool").output = {"false": True}
        row = store.cells()[key].row
        store.add_cells([CellResult(key, "done", row, pack_spans(spans), attempt=2)])
    found = run("replay", str(tmp_path), key)
    assert found.exit_code == 1
    assert "different" in found.stdout
    assert "first divergence: tool" in found.stdout


def test_report_writes_a_page_and_says_where(results):
    found = run("report", str(results))
    assert found.stdout.strip() == str(results / "report.html")
    assert (results / "report.html").is_file()


def test_suites(monkeypatch):
    found = run("suites").stdout
    for name in ("blocks", "chain", "travel", "quickstart", "agentdojo/travel"):
        assert name in found
    assert "7 easy, 7 medium, 6 hard" in found
    monkeypatch.setattr("agentlab.views.cli.doctor.find_spec", lambda name: None)
    assert "pip install 'agentlab-sandbox[agentdojo]'" in run("suites", width=120).stdout


def test_doctor_is_well_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run("doctor")
    assert found.exit_code == 0, found.stdout
    assert "chain solved in" in found.stdout
    assert "broken" not in found.stdout


def test_doctor_finds_what_is_broken(tmp_path, monkeypatch):
    monkeypatch.setattr("agentlab.environments.suites.folder", lambda: tmp_path)
    found = run("doctor")
    assert found.exit_code == 1
    assert re.search(r"broken +datasets +no suite in", found.stdout)
    assert re.search(r"broken +a run +UnknownNameError: unknown suite 'chain'", found.stdout)


def test_version_and_help():
    assert run("--version").stdout == f"agentlab {al.__version__}\n"
    for words in ((), ("--help",), ("-h",)):
        found = run(*words)
        assert found.exit_code == 0
        assert "doctor" in found.stdout
    assert "--fault-rate" in run("eval", "--help").stdout


# ---- bad input -----------------------------------------------------------------------------

CHAIN = "eval chain --out {out}/r"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("eval travl", "unknown suite 'travl'; did you mean 'travel'?"),
        (f"{CHAIN} --planner serach", "unknown planner 'serach'; did you mean 'search'?"),
        (f"{CHAIN} --strategy retri(2)", "unknown strategy 'retri'; did you mean 'retry'?"),
        (f"{CHAIN} --strategy retry(times=2)", "unexpected keyword argument 'times'; known: k, "),
        (f"{CHAIN} --strategy retry(", "expected a name with literal arguments"),
        (f"{CHAIN} --planner reference(noise=7)", "expected noise between 0 and 1, got 7"),
        (f"{CHAIN} --fault-rate 2", "a fault rate is a number between 0 and 1, got 2.0"),
        (f"{CHAIN} --fault-rate some", "such as '0,0.1,0.3', got 'some'"),
        (f"{CHAIN} --fault-rate nan", "a fault rate is a number between 0 and 1, got nan"),
        (f"{CHAIN} --faults slient", "unknown faults 'slient'; did you mean 'silent'?"),
        (f"{CHAIN} --seeds 0", "'--seeds'"),
        (f"{CHAIN} --seeds many", "'--seeds'"),
        (f"{CHAIN} --workers 0", "--workers of at least 1 such as '1,4', got '0'"),
        (f"{CHAIN} --workers 1,,2", "such as '1,4', got '1,,2'"),
        (f"{CHAIN} --workers two", "such as '1,4', got 'two'"),
        (f"{CHAIN} --workflow residnt", "unknown workflow 'residnt'; did you mean 'resident'?"),
        (f"{CHAIN} --workflow=", "got ''"),
        (f"{CHAIN} --fault-rate=", "such as '0,0.1,0.3', got ''"),
        (f"{CHAIN} --processes 0", "'--processes'"),
        (f"{CHAIN} --limit 0", "'--limit'"),
        (f"{CHAIN} --colour", "--colour"),
        ("eval", "Missing argument"),
        ("evil", "No such command 'evil'"),
        ("eval {out}/none.jsonl", "none.jsonl: cannot be read"),
        ("eval {out}/text.jsonl", "text.jsonl, line 2: not JSON"),
        ("eval {out}/half.jsonl", "half.jsonl, line 1: field task: is missing"),
        ("eval {out}/none.yaml", "none.yaml: cannot be read"),
        (
            "eval {out}/key.yaml",
            "key.yaml: field planer: is no field of it, got 'search'; did you mean",
        ),
        ("eval chain --out {out}/key.yaml", "key.yaml/study.db: cannot be written"),
        ("eval chain --out {out}/key.yaml/below", "cannot be written (Not a directory)"),
        ("eval chain --out /proc/agentlab", "/proc/agentlab/study.db: cannot be written"),
        ("eval chain --out {out}/newer", "written by a newer agentlab (format 99"),
        ("eval chain --out {out}/other", "an SQLite file, but no agentlab results"),
        ("eval chain --out {out}/junk", "no SQLite file"),
        ("show {out}/newer", "written by a newer agentlab (format 99"),
        ("report {out}", "no such results file"),
        ("replay {out} abc", "no such results file"),
        ("show {results} zzz", "no run of it starts with 'zzz'; keys look like"),
        ("replay {results} zzz", "no run of it starts with 'zzz'; keys look like"),
        ("replay {results}", "expected the key of a run; keys look like"),
        ("resume {results}", "it holds a study, which agentlab eval goes on with"),
        ("resume {out}/r", "r/study.db: no such results file"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(words, message, tmp_path, results, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = json.dumps(load_suite("chain")[0].to_json())
    (tmp_path / "text.jsonl").write_text(f"{line}\n{{no\n")
    (tmp_path / "half.jsonl").write_text('{"id": "a", "environment": "chain"}\n')
    (tmp_path / "key.yaml").write_text("suite: chain\nplaner: search\n")
    for name in ("newer", "other", "junk"):
        (tmp_path / name).mkdir()
    with Store(tmp_path / "newer") as store:
        store.connection.execute("PRAGMA user_version = 99")
    other = sqlite3.connect(tmp_path / "other" / "study.db")
    other.execute("CREATE TABLE t (x)")
    other.close()
    (tmp_path / "junk" / "study.db").write_text("x" * 5000)
    found = run(*words.format(out=tmp_path, results=results).split())
    assert message in refused(found)
    assert not (tmp_path / "r").exists()


def test_a_full_disk_ends_the_study_and_keeps_what_was_finished(tmp_path, monkeypatch):
    opened = Store.__init__

    def small(self, *arguments, **options):
        opened(self, *arguments, **options)
        self.connection.execute("PRAGMA max_page_count = 30")

    words = ("eval", "chain", *SMALL, "--out", str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(Store, "__init__", small)
        message = refused(run(*words))
    assert "the disk is full; what was finished is kept" in message
    kept, _ = cell_counts(tmp_path)
    assert kept > 0
    assert run(*words).exit_code == 0
    more, different = cell_counts(tmp_path)
    assert more == different > kept


def test_a_report_that_cannot_be_written_is_one_message(results):
    (results / "report.html").unlink(missing_ok=True)
    (results / "report.html").mkdir()
    try:
        assert "report.html: Is a directory" in refused(run("report", str(results)))
    finally:
        (results / "report.html").rmdir()


# ---- real processes ------------------------------------------------------------------------


def test_help_loads_nothing_heavy():
    """So it is quick, on any machine; how quick is what ``benchmarks/imports.py`` says."""
    heavy = "{'dspy', 'pandas', 'numpy', 'matplotlib', 'scipy'} & set(sys.modules)"
    code = f"import sys, agentlab.views.cli.cli; sys.exit(str({heavy}) if {heavy} else 0)"
    subprocess.run([*COMMAND, "--help"], check=True, capture_output=True)
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_mistake_in_a_real_process(tmp_path):
    process = start("eval", "chain", "--out", str(tmp_path / "\x1b[31mx"), "--planner", "[red]")
    out, err = process.communicate(timeout=60)
    found = subprocess.CompletedProcess([], process.returncode, out, err)
    assert "arm '[red] × never': expected a name with literal arguments" in refused(found)


def test_a_reader_that_goes_away_is_no_error(results):
    process = start("show", str(results), "--limit", "1000")
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)


def test_a_file_that_may_not_grow_is_like_a_full_disk(tmp_path):
    resource = pytest.importorskip("resource")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    process = start("eval", "chain", "--seeds", "2", "--out", str(tmp_path), preexec_fn=limit)
    out, err = process.communicate(timeout=120)
    message = refused(subprocess.CompletedProcess([], process.returncode, out, err))
    assert "study.db" in message
    assert "what was finished is kept" in message


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(tmp_path, processes):
    words = (
        "eval", "chain", "--seeds", "3", "--limit", "12", "--planner", "search", "--processes",
        str(processes), "--out", str(tmp_path),
    )  # fmt: skip
    process = start(*words)
    wait_for_cells(process, tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    message = refused(subprocess.CompletedProcess([], process.returncode, out, err), code=130)
    told = re.fullmatch(
        rf"interrupted; (\d+) finished runs are kept in {re.escape(str(tmp_path))}; "
        "the same command goes on", message,
    )  # fmt: skip
    assert told
    before, _ = cell_counts(tmp_path)
    runs = al.Study.open(tmp_path).runs
    assert len(runs) == int(told[1]) > 0

    assert run(*words).exit_code == 0
    written, different = cell_counts(tmp_path)
    study = al.Study.open(tmp_path)
    assert written == different == len(study._keyed()) > before
    assert len(study.runs) == 4 * 12 * 3 * 3
    kept = study.runs.set_index("cell").loc[runs["cell"], "wall_seconds"]
    assert kept.tolist() == runs["wall_seconds"].tolist()  # finished runs were not made again


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_killed_study_leaves_no_worker_behind(tmp_path):
    process = start("eval", "chain", "--processes", "2", "--out", str(tmp_path))
    wait_for_cells(process, tmp_path)
    process.kill()
    process.communicate(timeout=60)
    for _ in range(100):
        if not workers_of(process.pid):
            return
        time.sleep(0.1)
    left = workers_of(process.pid)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    raise AssertionError(f"workers live on: {left}")


def workers_of(session: int) -> list[int]:
    """Return the processes of a session that are not finished."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has ended meanwhile
            continue
        if int(its_session) == session and state not in "ZX":
            found.append(int(path.parent.name))
    return found


def wait_for_cells(process: subprocess.Popen[str], folder: Path, least: int = 40) -> None:
    """Return when the study has written some cells and is still at it."""
    for _ in range(3000):
        assert process.poll() is None, process.stderr.read()
        try:
            if cell_counts(folder)[0] >= least:
                return
        except sqlite3.OperationalError:  # no file or no table yet
            pass
        time.sleep(0.01)
    raise AssertionError("the study did not begin")


# ---- what is printed -----------------------------------------------------------------------


def test_bars_grow_by_eighths():
    assert [terminal.bar(k / 8, 1) for k in range(9)] == list(" ▏▎▍▌▋▊▉█")
    assert terminal.bar(2.0, 3) == "███"
    assert terminal.bar(float("nan"), 3) == "···"


def test_numbers_that_are_not_known_are_a_dash():
    assert terminal.percent(float("nan")) == terminal.number(float("nan")) == "–"
    assert (terminal.number(3.14), terminal.number(123.4)) == ("3.1", "123")


def test_an_interval_reads_the_same_on_the_terminal_and_in_the_report(results):
    again = ("eval", "quickstart", *SMALL[:-2], "--limit", "6", "--out", str(results))
    shown = set(re.findall(r"% \[(−?\d+ … −?\d+)\]", run(*again).stdout))
    path = Path(run("report", str(results)).stdout.strip())
    assert shown
    assert shown <= set(re.findall(r"−?\d+ … −?\d+", path.read_text(encoding="utf-8")))


def test_a_line_is_one_line():
    assert terminal.line("a\n\tb\x00c", 6) == "a b\\x…"
