"""Calls of a language model: what our way there costs, and a study that waits for them.

**A call.** The model is a script that replies at once, so what is timed is the way: from the bare
engine (``complete`` of a request that is already built), through ``dspy.Predict`` (prompt, request,
reply parsed), to ours (the same, with the door, a span of prompt and reply, the journal and the
count of requests, as a node of a run asks). dspy is asked with its own adapter and with ours,
whose prompt is shorter: the second says what door and talk add to the same request.

**A study.** ``structured × never`` on the chain scenarios of three steps: two calls a run, 50 ms
each, asleep for real; 64 runs at once, shared out among two processes. Ideal is 64 calls every 50
ms and nothing else. It is timed from when the first run begins (50 ms twice before it is stored) to
when the last is stored; what starting the workers takes is a line of its own. ``dspy.Evaluate``
with 64 threads sends the same requests to the same engine, two ``dspy.Predict`` an example; it
carries out no plan, keeps no trace and stores nothing.

No clock can tell what two processes would have done on an idle machine. On a busy one look at the
processor time of a call: as long as it stays well under what the processors have for each call at
the ideal rate, they are not what the study waits for.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path
from time import perf_counter

from measure import Row, clock, found_in, interleaved, medians, report
from throughput import busy

import agentlab as al

connected = found_in("connected", "lab.named", "lab")
lm_errors = found_in("lm_errors", "lm")
PlainAdapter, TextAdapter = (found_in(n, "lm.adapters") for n in ("PlainAdapter", "TextAdapter"))
Recording = found_in("Recording", "lm.recording")
scripted = found_in("scripted", "lm.scripted")
load_dspy, request_document = (found_in(n, "lm.serde") for n in ("load_dspy", "request_document"))
RESPOND, SITUATION, TextProgram = (
    found_in(name, "minds.programs", "minds.by_model", "minds")
    for name in ("RESPOND", "SITUATION", "TextProgram")
)
Talk = found_in("Talk", "lab.talk", "talk")
NoJournal = found_in("NoJournal", "trace.journal")
Recorder = found_in("Recorder", "trace.recorder")
digest = found_in("digest", "base.values", "values")

dspy = load_dspy()

CALLS = 300
REPETITIONS = 7
INPUTS = {
    "question": "Book me a flight to Lisbon on Friday, and a hotel near the river.",
    "intent": "A flight and a hotel in Lisbon from Friday on.",
    "steps": "- flight (call_tool) completed gave {'id': 'f1'}\n- hotel (call_tool) failed: full",
    "mind": "The answer is f1.\nReplans left: 2.",
}
REPLY = "[[ ## text ## ]]\nThe flight is booked; the hotel was full.\n\n[[ ## completed ## ]]"

DELAY = 0.05
WORKERS, PROCESSES = 64, 2
SEEDS = 400
STUDIES = 3
TARGET = 0.9


# ---- a call ----------------------------------------------------------------------------------


def a_call(program: Callable[[], object]) -> float:
    """Return the mean microseconds of a call."""
    started = clock()
    for _ in range(CALLS):
        program()
    return (clock() - started) / CALLS * 1e6


def calls() -> dict[str, float]:
    """Return the microseconds of a call by every way."""
    model = scripted(lambda request, n: REPLY)
    engine, program = model.engine, TextProgram(RESPOND, SITUATION)
    ours = program.write.signature
    theirs = dspy.Predict(dspy.Signature("question, intent, steps, mind -> text", RESPOND))
    same = dspy.Predict(ours)
    lm = dspy.LM(model.name, engine=engine, cache=False, num_retries=0)
    state = al.State()
    quiet = {"disable_history": True, "callbacks": [], "trace": None}

    def talk(asked) -> None:
        made = Talk(asked, state, Recorder(), NoJournal())
        with made.open(), lm_errors():
            assert program(**INPUTS).text
        assert len(made.calls) == 1

    def predicted(predict, adapter) -> float:
        with dspy.context(lm=lm, adapter=adapter, **quiet):
            return a_call(lambda: predict(**INPUTS).text)

    talk(model)
    [request] = engine.requests
    with tempfile.TemporaryDirectory() as folder:
        tape = Path(folder) / "calls.jsonl"
        talk(model.recorded(Recording(tape, "record")))
        served = model.recorded(Recording(tape))

        def forgetful(way: Callable[[], float]) -> Callable[[], float]:
            def timed() -> float:
                engine.requests.clear()
                return way()

            return timed

        programs = {
            "bare": lambda: a_call(lambda: engine.complete(request)),
            "dspy": lambda: predicted(theirs, dspy.ChatAdapter(use_json_adapter_fallback=False)),
            "same": lambda: predicted(same, TextAdapter()),
            "ours": lambda: a_call(lambda: talk(model)),
            "served": lambda: a_call(lambda: talk(served)),
        }
        ways = {name: forgetful(way) for name, way in programs.items()}
        for way in ways.values():
            way()
        return medians(interleaved(ways, REPETITIONS))


# ---- a study ---------------------------------------------------------------------------------


def script(path: Path, suite: al.Suite) -> str:
    """Write the replies of a model that plans by the book; return its name."""
    rules = []
    for s in suite:
        steps = [
            {
                "stepId": step.step_id, "actionType": "call_tool", "targetResource": step.tool,
                "parameters": step.arguments, "dependencies": list(step.dependencies),
            }
            for step in s.reference.steps
        ]  # fmt: skip
        plan = json.dumps({"summary": "plan", "steps": steps, "answer": s.reference.answer})
        rules.append({"when": f"## task\n{re.escape(s.task)}\n", "say": plan, "delay": DELAY})
    rules.append({"when": "## question", "say": "That has been done.", "delay": DELAY})
    path.write_text(json.dumps(rules))
    return f"scripted:{path}"


def study(lm: str, suite: al.Suite, out: Path, seeds: int) -> al.Study:
    arms = al.grid(planner="structured", strategy="never", lm=lm)
    return al.Study(arms, suite, seeds=seeds, controls=False, out=out)


class Same(dspy.Module):
    """Sends the requests that a run sent."""

    def __init__(self, runs: list[list[dict]]) -> None:
        super().__init__()
        self.ask = dspy.Predict("prompt -> reply")
        self.runs = [[taken_apart(request) for request in requests] for requests in runs]

    def forward(self, number):
        for adapter, prompt, config in self.runs[number]:
            with dspy.context(adapter=adapter):
                reply = self.ask(prompt=prompt, config=config)
        return reply


def taken_apart(request: dict) -> tuple:
    """Return adapter, prompt and settings that make this request again."""
    [message] = request["messages"]
    [part] = message["parts"]
    form = dict(request.get("config", {}).get("response_format", {}))
    config = {"response_format": {"type": form.pop("type"), "json_schema": form}} if form else {}
    return PlainAdapter(request["system"]), part["text"], config


def workers_busy() -> float:
    """Return the processor seconds of worker processes that are alive (Linux; elsewhere 0)."""
    ticks = 0
    for worker in active_children():
        stat = Path(f"/proc/{worker.pid}/stat")
        if stat.exists():
            ticks += sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Bound:
    """The two programs that wait; each returns calls a second."""

    def __init__(self, folder: Path) -> None:
        self.suite = al.Suite("three steps", list(al.load_suite("chain"))[:7])
        self.folder, self.lm = folder, script(folder / "script.json", self.suite)
        self.noted: dict[str, list[float]] = {}
        made = study(self.lm, self.suite, folder / "first", seeds=1)
        made.run(processes=1, threads=7, progress=False)
        self.requests = [list(g["request"]) for _, g in made.lm_calls.groupby("scenario")]
        assert all(len(requests) == 2 for requests in self.requests)

    def ours(self) -> float:
        told: list[tuple[float, int]] = []
        with tempfile.TemporaryDirectory(dir=self.folder) as out:
            made = study(self.lm, self.suite, Path(out), SEEDS)
            used: list[float] = []
            begun = perf_counter()

            def tell(finished: int, total: int, rate: float) -> None:
                told.append((perf_counter(), finished))
                if len(told) == 1 or finished == total:
                    used.append(busy() + workers_busy())

            runs = made.run(processes=PROCESSES, threads=WORKERS, progress=tell)
            assert runs["success"].all()
            assert (runs["lm_calls"] == 2).all()
        (first, already), (last, _) = told[0], told[-1]
        asked = 2 * len(runs)
        self._note("start", first - 2 * DELAY - begun)
        self._note("our processor", (used[1] - used[0]) / (asked - 2 * already) * 1e3)
        return asked / (last - first + 2 * DELAY)

    def theirs(self) -> float:
        engine = connected(self.lm).engine
        engine.requests.clear()
        logging.getLogger("dspy").setLevel(logging.WARNING)  # or it says how it went on stderr
        lm = dspy.LM("scripted/model", engine=engine, cache=False, num_retries=0)
        devset = [
            dspy.Example(number=n).with_inputs("number")
            for _ in range(SEEDS) for n in range(len(self.requests))
        ]  # fmt: skip
        evaluate = dspy.Evaluate(
            devset=devset, metric=lambda *_: 1.0, num_threads=WORKERS, display_progress=False
        )
        used = busy()
        with dspy.context(lm=lm, disable_history=True, trace=None):
            begun = perf_counter()
            found = evaluate(Same(self.requests))
            seconds = perf_counter() - begun
        assert found.score == 100
        assert len(engine.requests) == 2 * len(devset)
        sent = {digest(request_document(r)) for r in engine.requests}
        assert sent == {digest(r) for requests in self.requests for r in requests}
        self._note("their processor", (busy() - used) / (2 * len(devset)) * 1e3)
        return 2 * len(devset) / seconds

    def _note(self, name: str, value: float) -> None:
        self.noted.setdefault(name, []).append(value)


def rows() -> list[Row]:
    call = calls()
    with tempfile.TemporaryDirectory() as folder:
        bound = Bound(Path(folder))
        rate = medians(interleaved({"ours": bound.ours, "theirs": bound.theirs}, STUDIES))
        other = medians(bound.noted)
    us, ideal = call["ours"], WORKERS / DELAY
    what = f"LM-bound study, {DELAY * 1e3:.0f} ms, {WORKERS} workers: calls"
    return [
        Row("LM call, parsed and traced", us, "µs", call["dspy"], "dspy.Predict", "≥ 1×",
            us <= call["dspy"]),
        Row("... the same prompt", us, "µs", call["same"], "dspy.Predict, our adapter"),
        Row("... what door and talk add to it", us - call["same"], "µs"),
        Row("... beside the bare engine", us, "µs", call["bare"], "engine.complete"),
        Row("... served from a recording", call["served"], "µs", us, "asking the script"),
        Row(what, rate["ours"], "/s", ideal, "ideal", f"≥ {TARGET}×",
            rate["ours"] >= TARGET * ideal),
        Row("...", rate["ours"], "/s", rate["theirs"], f"dspy.Evaluate, {WORKERS} threads"),
        Row("... processor time a call", other["our processor"], "ms",
            PROCESSES / ideal * 1e3, f"what {PROCESSES} processors have"),
        Row("... of dspy.Evaluate", other["their processor"], "ms", 1 / ideal * 1e3,
            "what its one has"),
        Row("... starting its workers", other["start"], "s"),
    ]  # fmt: skip


if __name__ == "__main__":
    report(rows())
