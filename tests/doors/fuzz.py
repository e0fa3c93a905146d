"""A fuzz of every door: what comes in from outside is read, or refused by an error of ours.

For each door there are good inputs and a function that lets one in. Good inputs are mutated (bytes
flipped, cut, spliced, tokens and JSON values swapped for nasty ones), and what the function raises
must be an ``AgentLabError``. A child process does the work, with a bound on its memory; an input
that takes more than ``SLOW`` processor seconds, or that kills or stops the child, is a fault like a
traceback. Each input follows from (seed, door, number) alone, and what is at fault is kept as a
file, so that it can be let in again::

    python tests/doors/fuzz.py --minutes 20 --seed 7 [--door suite] [--keep FOLDER]
    python tests/doors/fuzz.py --door suite --again FOLDER/suite-123
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from answers import ANSWERS, dumped, text
from pydantic import ValidationError

import agentlab as al
from agentlab.base.built_in import BUILT_IN
from agentlab.errors import AgentLabError

SLOW = 5.0
"""Processor seconds: five times what an input may take, for a machine that is busy."""
STUCK = 40.0
"""Wall seconds after which a child that has not moved on is killed."""
MEMORY = 3 << 30

ROOT = Path(__file__).parents[2]
WORK = Path(tempfile.gettempdir()) / f"agentlab-doors-{os.getpid()}"


@dataclass(frozen=True)
class Door:
    good: Callable[[], list[bytes]]
    enter: Callable[[bytes], object]
    allowed: tuple[type[BaseException], ...] = (AgentLabError,)


# ---- mutations -------------------------------------------------------------------------------

NASTY = [
    None, True, -1, 0, 10**18, 2**63, 1.5, -0.0, 1e308, "", "\0", "\ud800", "a" * 5000, "${",
    "${a}",
    "${a.b[0]}", "${a." + "b." * 300 + "c}", "../../etc/passwd", "-", "~", "nan", "2001-99-99", [],
    {}, [[]], {"": {}}, [None], ["a", "a"], "search(" + "-" * 300 + "1)", "os:system('x')", " ",
    {"$ref": "#"}, {"$ref": "#/$defs/x"}, "\u2028", "x:y", "é" * 50, list(range(50)),
]  # fmt: skip
TOKENS = [
    b"1e999", b"NaN", b"-Infinity", b"9" * 5000, b"0x" + b"f" * 300, b"[" * 300, b"{\"a\":" * 300,
    b"]" * 20, b"&a [*a]", b"*a", b"!!int z", b"!!timestamp z", b"!!python/name:os.system x",
    b"2001-99-99", b"<<: {}", b"? [a]", b"\xff", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\0", b"\n---\n",
    b"'", b"\"", b"`", b"${", b"}", b"1:30", b"010", b"- " * 300, b".a" * 3000, b"-" * 3000, b"%",
    b"(", b"))", b"**", b"lambda: 1", b"\\ud800", b"\\u0000", b": ", b"#", b"|\n", b",", b"=",
]  # fmt: skip


def mutated(rng: random.Random, goods: list[bytes]) -> bytes:
    data = rng.choice(goods)
    if rng.random() < 0.5:
        lines = data.split(b"\n")
        at = rng.randrange(len(lines))
        try:
            document = json.loads(data)
            data = dumped(swapped(rng, document))
        except ValueError:
            try:
                lines[at] = dumped(swapped(rng, json.loads(lines[at])))
            except ValueError:
                lines[at] = rng.choice([spelled(rng, lines[at]), b"", rng.choice(lines)])
            data = b"\n".join(lines)
    for _ in range(rng.choice([0, 1, 1, 2, 4])):
        data = torn(rng, data, goods)
    return data


def spelled(rng: random.Random, line: bytes) -> bytes:
    """A line of YAML or TOML with another value behind its key."""
    head, mark, _ = line.partition(rng.choice([b": ", b" = ", b":", b"("]))
    value = rng.choice([dumped(rng.choice(NASTY)), rng.choice(TOKENS)])
    return head + mark + value


def swapped(rng: random.Random, document: object) -> object:
    """A JSON value with one place in it changed, left out, doubled or renamed."""
    if rng.random() < 0.15 or not isinstance(document, (dict, list)) or not document:
        return rng.choice(NASTY)
    key = rng.choice(list(document) if isinstance(document, dict) else range(len(document)))
    if isinstance(document, list):
        changed = list(document)
        how = rng.random()
        if how < 0.1:
            del changed[key]
        elif how < 0.2:
            changed.insert(key, changed[key])
        else:
            changed[key] = swapped(rng, changed[key])
        return changed
    changed = dict(document)
    how = rng.random()
    if how < 0.1:
        del changed[key]
    elif how < 0.2:
        changed[str(rng.choice(NASTY))[:50]] = changed.pop(key)
    else:
        changed[key] = swapped(rng, changed[key])
    return changed


def torn(rng: random.Random, data: bytes, goods: list[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice([1, 2, 8, 64]))
    match rng.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:at] + rng.choice(TOKENS) + data[end:]
        case 3:
            other = rng.choice(goods)
            return data[:at] + other[rng.randrange(len(other) + 1) :]
        case 4:
            return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        case _:
            return data[:at] + data[at:end] * rng.choice([2, 50]) + data[end:]


# ---- the doors -------------------------------------------------------------------------------


def written(data: bytes, name: str) -> Path:
    path = WORK / name
    path.write_bytes(data)
    return path


def suites() -> list[bytes]:
    found = []
    for name in ("quickstart", "travel", "workshop"):
        lines = (ROOT / "datasets" / f"{name}.jsonl").read_bytes().split(b"\n")
        found += [lines[0] + b"\n", b"\n".join(lines[1:3])]
    return found


def suite(data: bytes) -> None:
    al.load_suite(written(data, "s.jsonl"))


STUDIES = [
    b"suite: quickstart\nplanner: [search, reference(noise=0.2)]\nstrategy: [never, 'retry(2)']\n"
    b"fault_rate: [0, 0.1]\nseeds: 3\nfaults: transient\nbudget: replans=1,3\nlimit: 2\nout: o\n",
    b"suite: chain\nseeds: [1, 2]\nfault_rate: '0,0.5'\nworkers: [1, 4]\nlimit: 1\n"
    b"faults: {rate: 0.1, kinds: {error: 1.0}, outages: [{name: a, tool: b, start: 1}]}\n"
    b"budget: {replans: [1, 3], seconds: 60}\nworkflow: [autonomous, resident]\nreview: approve\n",
]


def study(data: bytes) -> None:
    from agentlab.study.definition import read_definition

    read_definition(written(data, "s.yaml")).study(controls=False)


def agents() -> list[bytes]:
    return [(ROOT / "datasets/examples/agents.yaml").read_bytes()]


TOML = (
    b"[[agents]]\nid = 'a'\nname = 'A'\nmodel = 'm'\ntools = ['t']\nmax_tokens = 5\n"
    b"temperature = 0.5\n[[models]]\nmodelId = 'm'\ntopP = 0.5\n[[tools]]\nid = 't'\nname = 't'\n"
    b"timeoutMs = 5\nparameters = {type = 'object', properties = {x = {type = 'string'}}}\n"
)


def registry_of(name: str) -> Callable[[bytes], None]:
    def enter(data: bytes) -> None:
        from agentlab.state.config import load_registry

        found = load_registry(written(data, name))
        for agent in list(found.agents)[:5]:
            found.load(agent)

    return enter


STEP = {
    "stepId": "a", "name": "a", "actionType": "call_tool", "targetResource": "t",
    "parameters": {"x": "${b.y[0]}"}, "dependencies": ["b"],
}  # fmt: skip
PLANS = [
    dumped({"steps": [STEP, {**STEP, "stepId": "b", "dependencies": []}], "answer": "${a.x}"}),
    dumped([{"name": "a", "actionType": "aggregate", "targetResource": "", "parameters": {}}]),
]


def plan(data: bytes) -> None:
    from agentlab.base.strict_json import read_json_file
    from agentlab.errors import ConfigError
    from agentlab.plans.parsing import parse_plan

    parse_plan(read_json_file(written(data, "p.json"), ConfigError))


def reply(data: bytes) -> None:
    from agentlab.plans.parsing import parse_plan

    parse_plan(text(data))


def contract(data: bytes) -> None:
    from agentlab.plans.contract.codec import parsed

    parsed(text(data))


def recordings() -> list[bytes]:
    lines = (ROOT / "datasets/recordings/quickstart.jsonl").read_bytes().split(b"\n")
    return [b"\n".join(lines[:2]), lines[2] + b"\n"]


def recording(data: bytes) -> None:
    from agentlab.lm.recording import Recording

    Recording(written(data, "r.jsonl"), "replay").lines()


SCRIPTS = [
    dumped(
        [{"when": "a.*b", "say": "x", "delay": 0.5}, {"when": "", "say": "y", "finish": "stop"}]
    ),
    dumped(["a", {"tool_calls": [{"name": "t", "arguments": {"x": 1}}]}, {"say": "z"}]),
]


def script(data: bytes) -> None:
    """Read a script, and ask its model until it has no more to say."""
    from agentlab.lm.door import lm_errors
    from agentlab.lm.scripted import read_script

    model = read_script(written(data, "l.json"))
    model.engine._sleep = lambda seconds: None
    for _ in range(4):
        with lm_errors():
            model.lm()("aab")


NAMES = [
    b"search", b"reference(noise=0.2)", b"retry(2)", b"retry_then_replan(2, wait=1.5)",
    b"json:dumps('x')", b"interval(n=3)", b"on_event(threshold='high', batch=2)", b"travel",
    b"agentlab.minds.planners.search:Search(noise=0.1)", b"never", b"no_such.module:Name(1)",
]  # fmt: skip


def names(data: bytes) -> None:
    from agentlab.base.registry import registry

    for kind in BUILT_IN:
        try:
            registry(kind).build(text(data))
        except AgentLabError:
            continue


REFERENCES = [b"${a.b[0].c}", b"to ${find.flights[?price<`3`].id | [0]}, $${5}", b"${a}${b.c}"]


def references(data: bytes) -> None:
    from agentlab.plans.references import parse, resolve

    results = {
        "a": {"b": [{"c": 1}]},
        "find": {"flights": [{"price": 1, "id": "x"}]},
        "b": {"c": 2},
    }
    parse(text(data))
    resolve({"x": [text(data)]}, results)


def states() -> list[bytes]:
    from agentlab.runs.run import Run
    from agentlab.workflows.named import get_workflow

    lab = al.Lab(al.load_suite("quickstart")[0], planner="search")
    run = Run.start(get_workflow("autonomous"), lab)
    run.finish()
    return [dumped(run.state.to_json()), dumped(lab.initial_state().to_json())]


def state(data: bytes) -> None:
    from agentlab.base.strict_json import read_json
    from agentlab.state.state import State

    State.model_validate(read_json(data))


def arguments(data: bytes) -> None:
    from agentlab.views.people import read_arguments

    read_arguments(text(data))


@cache
def kept() -> tuple[Path, Path]:
    """A folder of a study and one of a kept run."""
    from typer.testing import CliRunner

    from agentlab.views.cli.cli import app

    one, other = WORK / "study", WORK / "kept"
    words = "eval quickstart --limit 1 --seeds 1 --planner search --strategy never --fault-rate 0.3"
    CliRunner().invoke(app, [*words.split(), "--processes", "1", "--out", str(one)])
    (WORK / "p.json").write_bytes(PLANS[1])
    (WORK / "a.yaml").write_text("agents:\n- id: a\n")
    words = f"run hi --agent {WORK}/a.yaml:a --plan {WORK}/p.json --out {other}"
    CliRunner().invoke(app, words.split())
    assert (one / "study.db").is_file()
    assert (other / "study.db").is_file()
    return one, other


def cells() -> list[bytes]:
    """Every value of both stores, behind the place where it stands."""
    found = []
    for number, folder in enumerate(kept()):
        connection = sqlite3.connect(folder / "study.db")
        tables = [
            t
            for (t,) in connection.execute("select name from sqlite_master where type='table'")
            if not t.startswith("sqlite")
        ]
        for table in tables:
            columns = [c[1] for c in connection.execute(f"pragma table_info({table})")]
            for column in columns[1:]:
                for row, value in connection.execute(
                    f"select rowid, {column} from {table} limit 4"
                ):
                    place = f"{number} {table} {column} {row}".encode()
                    raw = value if isinstance(value, bytes) else str(value).encode()
                    if isinstance(value, bytes):
                        raw = b"Z" + zlib.decompress(value) if value else b""
                    found.append(place + b"\x1f" + raw)
        connection.close()
    return found


def store(data: bytes) -> None:
    """Put one value into a copy of a store, and read all there is to read."""
    place, mark, raw = data.partition(b"\x1f")
    found = re.fullmatch(rb"([01]) (\w+) (\w+) (\d+)", place)
    if not mark or found is None:
        return
    folder = WORK / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept()[int(found[1])], folder)
    connection = sqlite3.connect(folder / "study.db", isolation_level=None)
    for (name,) in connection.execute(
        "select name from sqlite_master where type='trigger'"
    ).fetchall():
        connection.execute(f"drop trigger {name}")
    value: object = zlib.compress(raw[1:]) if raw[:1] == b"Z" else raw.decode("utf-8", "replace")
    try:
        connection.execute(
            f"update {found[2].decode()} set {found[3].decode()} = ? where rowid = ?",
            (value, int(found[4])),
        )
    except sqlite3.Error:
        return
    finally:
        connection.close()
    for words in (["show"], ["report"], ["replay"]):
        commanded([*words, str(folder)])
    if found[1] == b"0":
        opened = al.Study.open(folder)
        for frame in ("runs", "steps", "decisions", "faults", "lm_calls"):
            opened.frame(frame)
        for cell in list(opened.runs["cell"])[:1]:
            opened.replay(cell)


def commanded(words: list[str]) -> None:
    from typer.testing import CliRunner

    from agentlab.views.cli.cli import app

    result = CliRunner().invoke(app, words)
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        raise error
    assert result.exit_code in (0, 1, 2, 3, 130), result.exit_code


COMMANDS = [
    b"show\x1fSTUDY\x1f--failed\x1f--limit\x1f5", b"show\x1fSTUDY\x1f0", b"report\x1fSTUDY",
    b"replay\x1fKEPT", b"show\x1fKEPT", b"suites", b"--version", b"resume\x1fKEPT\x1f0",
    b"eval\x1fquickstart\x1f--limit\x1f1\x1f--seeds\x1f2\x1f--fault-rate\x1f0,0.1\x1f--workers\x1f1,4",
    b"eval\x1fquickstart\x1f--planner\x1fsearch\x1f--strategy\x1fretry(2)\x1f--budget\x1freplans=1",
    b"run\x1fhi\x1f--agent\x1fexample:assistant\x1f--workers\x1f2\x1f--review\x1fapprove",
]  # fmt: skip


def command(data: bytes) -> None:
    one, other = kept()
    words = [
        w for w in text(data).replace("STUDY", str(one)).replace("KEPT", str(other)).split("\x1f")
    ]
    if words[:1] == ["eval"]:
        words += ["--faults", "no such", "--out", str(WORK / "never")]  # refused before it runs
    if words[:1] == ["run"]:
        words += ["--plan", str(WORK / "none.json")]
    if words[:1] != ["calibrate"] and words[:1] != ["doctor"]:
        commanded(words)


DOORS = {
    "suite": Door(suites, suite),
    "study": Door(lambda: STUDIES, study),
    "agents.yaml": Door(agents, registry_of("a.yaml")),
    "agents.toml": Door(lambda: [TOML], registry_of("a.toml")),
    "plan": Door(lambda: PLANS, plan),
    "reply": Door(lambda: [*PLANS, b"```json\n" + PLANS[0] + b"\n```", b"x " + PLANS[1]], reply),
    "contract": Door(lambda: PLANS, contract),
    "recording": Door(recordings, recording),
    "script": Door(lambda: SCRIPTS, script),
    "name": Door(lambda: NAMES, names),
    "reference": Door(lambda: REFERENCES, references),
    "state": Door(states, state, (AgentLabError, ValidationError)),
    "arguments": Door(lambda: [dumped({"a": 1, "b": [1, {"c": None}]})], arguments),
    "store": Door(cells, store),
    "command": Door(lambda: COMMANDS, command),
    **{name: Door(*pair) for name, pair in ANSWERS.items()},
}


# ---- running ---------------------------------------------------------------------------------


def made(door: str, seed: int, number: int, goods: list[bytes]) -> bytes:
    return mutated(random.Random(f"{seed} {door} {number}"), goods)


def problem_of(door: Door, data: bytes) -> str | None:
    """Let an input in; return what is wrong with how it was met."""
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            door.enter(data)
    except door.allowed as e:
        try:
            if len(str(e)) > 20_000:
                return f"a message of {len(str(e)):,} characters"
        except Exception as again:
            return f"an error without a text: {again!r}"
    except BaseException as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        told = f"{type(e).__name__}: {str(e)[:200]} ({Path(where.filename).name}:{where.lineno})"
        return told + "\n" + "".join(traceback.format_exc()[-1500:])
    took = time.process_time() - began
    return f"took {took:.1f} processor seconds" if took > SLOW else None


def child(name: str, seed: int, first: int, until: float, keep: Path, progress: Path) -> None:
    """Let inputs in, one after the other, and write down what is at fault."""
    door = DOORS[name]
    goods = door.good()
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    number = first
    while time.time() < until:
        progress.write_text(str(number))
        data = made(name, seed, number, goods)
        if problem := problem_of(door, data):
            report(keep, name, seed, number, data, problem)
        number += 1
    progress.write_text(f"{number} done")


def report(keep: Path, name: str, seed: int, number: int, data: bytes, problem: str) -> None:
    path = keep / f"{name}-{seed}-{number}"
    path.write_bytes(data)
    path.with_name(path.name + ".txt").write_text(
        f"{name} (seed {seed}, input {number}): {problem}"
    )


def fuzzed(name: str, seed: int, seconds: float, keep: Path) -> int:
    """Run one door for so many seconds; return how many inputs were let in."""
    progress, until, first = WORK / "progress", time.time() + seconds, 0
    while True:
        progress.write_text(str(first))
        pid = os.fork()
        if pid == 0:
            try:
                child(name, seed, first, until, keep, progress)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        told, at = "", time.time()
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            time.sleep(0.05)
            now = progress.read_text()
            told, at = (now, time.time()) if now != told else (told, at)
            if time.time() - at > STUCK:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                break
        told = progress.read_text() or "0"
        number = int(told.split()[0])
        if told.endswith("done"):
            return number
        report(
            keep,
            name,
            seed,
            number,
            made(name, seed, number, DOORS[name].good()),
            "it killed the process, or was not through in time",
        )
        if time.time() > until:
            return number
        first = number + 1


def say(told: str) -> None:
    sys.stdout.write(f"{told}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="for all doors together")
    parser.add_argument("--seed", type=int, default=None, help="0 in CI; else one is drawn")
    parser.add_argument("--door", action="append", choices=list(DOORS))
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "doors-faults")
    parser.add_argument("--again", type=Path, help="let this kept input in once more")
    asked = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    os.chdir(WORK)
    try:
        if asked.again is not None:
            problem = problem_of(DOORS[asked.door[0]], asked.again.read_bytes())
            say(problem or "it is met as it should be")
            return int(problem is not None)
        seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
        shutil.rmtree(asked.keep, ignore_errors=True)
        asked.keep.mkdir(parents=True)
        names = asked.door or list(DOORS)
        if {"store", "command"} & set(names):
            kept()
        if set(names) & set(ANSWERS):  # what is slow to import is imported once, before the forks
            door = DOORS["structured"]
            problem_of(door, door.good()[0])
        say(f"seed {seed}; what is at fault is kept in {asked.keep}")
        for name in names:
            number = fuzzed(name, seed, 60 * asked.minutes / len(names), asked.keep)
            say(f"{name:<12} {number:>8,} inputs")
        faults: dict[str, list[str]] = {}
        for path in sorted(asked.keep.glob("*.txt")):
            told = path.read_text()
            kind = told.split("): ", 1)[-1].split("\n")[0]
            faults.setdefault(re.sub("[0-9]+", "0", kind)[:80], []).append(told)
        for alike in faults.values():
            say(f"\n{len(alike)} like this one:\n{alike[0]}")
        say(f"{len(faults)} kinds of faults")
        return int(bool(faults))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
