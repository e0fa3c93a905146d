"""Two endpoints of one model are two arms, called by what tells them apart and by no secret."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given, strategies as st

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.environments.suites import Suite
from agentlab.errors import StudyError
from agentlab.lm.connect import connect
from agentlab.lm.recording import Recording
from agentlab.study.addresses import Address, address_of, apart, model_of
from agentlab.study.grid import Arm, check_arms, grid, tell_apart
from agentlab.study.study import Study

SUITE = Suite("two", [generate("easy", i, length=2 + i) for i in range(2)])
HOSTS = st.sampled_from(["gpu1.lab.org", "gpu2.lab.org", "gpu1.example", "10.0.0.1", "[::1]", "h"])
PORTS = st.sampled_from(["", ":1", ":8001", ":8002"])
PATHS = st.sampled_from(["", "/v1", "/v1/", "/a/v1", "/b/v1"])
USERS = st.sampled_from(["", "bob:hunter2@", "hunter2@", ":hunter2@"])
MORE = st.sampled_from(["", "?key=hunter2", "#hunter2", ";key=hunter2"])
URLS = st.builds(
    lambda scheme, *parts: "@" + scheme + "://" + "".join(parts),
    st.sampled_from(["http", "https", "HTTP"]), USERS, HOSTS, PORTS, PATHS, MORE,
)  # fmt: skip
NOT_URLS = st.sampled_from(
    ["", "@", "@20240620", "@bob:hunter2@h", "@bob:hunter2", "@http:/bob:hunter2@h/x", "@http://h:x/",
     "@http://[/", "@http://:hunter2@/v1"]
)  # fmt: skip


@given(st.lists(URLS | NOT_URLS, min_size=2, max_size=6, unique=True))
def test_every_endpoint_is_told_from_the_others_and_no_secret_is(ends):
    told = apart(f"openai/m{end}" for end in ends)
    assert len(set(told.values())) == len(told) == len(ends)
    assert not any("hunter2" in text for text in told.values())
    assert all(text or lm == "openai/m" for lm, text in told.items())


@given(st.lists(URLS, min_size=2, max_size=5, unique=True))
def test_no_part_of_an_address_that_tells_them_would_be_shorter(ends):
    """By trying every choice of parts."""
    told = apart(f"openai/m{end}" for end in ends)
    shown = [address_of(f"openai/m{end}") for end in ends]
    if any(text.startswith("#") for text in told.values()):
        assert len(set(shown)) < len(shown) or Address() in shown
        return
    fits, machines = [], []
    for keep in range(1, 16):
        parts = [
            Address(*(part if keep >> n & 1 else "" for n, part in enumerate(a))).text()
            for a in shown
        ]
        if all(parts) and len(set(parts)) == len(parts):
            fits.append(sum(map(len, parts)))
            machines += [] if keep & 0b1001 else [fits[-1]]  # neither scheme nor path
    assert sum(len(text) - 1 for text in told.values()) <= min(machines or fits)


@pytest.mark.parametrize(
    ("lms", "labels"),
    [
        (["m@http://127.0.0.1:8001/v1", "m@http://127.0.0.1:8002/v1"], ["m@:8001", "m@:8002"]),
        (["m", "m@http://gpu1.lab.org:8000/v1"], ["m", "m@gpu1"]),
        (["m@http://gpu1.lab.org/v1", "m@http://gpu2.lab.org/v1"], ["m@gpu1", "m@gpu2"]),
        (["m@http://a.x/v1", "m@http://a.y/v1"], ["m@a.x", "m@a.y"]),
        (["m@http://h/a", "m@http://h/b"], ["m@/a", "m@/b"]),
        (["m@http://10.0.0.1/v1", "m@http://10.0.0.2/v1"], ["m@10.0.0.1", "m@10.0.0.2"]),
        (["m@http://a:1/v1", "m@http://a:2/v1", "m@http://b:1/v1"], ["m@a:1", "m@a:2", "m@b:1"]),
        (["m?temperature=0@http://a/v1", "m?temperature=1@http://b/v1"],
         ["m?temperature=0", "m?temperature=1"]),
        (["claude@20240620", "claude@20241022"], ["claude@20240620", "claude@20241022"]),
        (["m@http://a/v1"], ["m"]),
    ],
)  # fmt: skip
def test_labels(lms, labels):
    arms = [Arm(lm=f"openai/{lm}") for lm in lms]
    tell_apart(arms)
    assert [a.label for a in arms] == [f"search × never × openai/{label}" for label in labels]
    assert [a.factors["lm"] for a in arms] == [f"openai/{lm}" for lm in lms]
    before = [a.label for a in arms]
    for some in (arms[:1], arms[1:], arms):  # a part of a study keeps what the whole is called
        tell_apart(some)
        assert [a.label for a in arms] == before


def test_a_grid_that_grows_calls_all_by_the_same_rule():
    urls = [f"openai/m@http://h:{port}/v1" for port in (1, 2, 3)]
    first = grid(lm=urls[:2])
    assert [a.label.rpartition("/")[2] for a in first] == ["m@:1", "m@:2"]
    grown = check_arms([*first, Arm(lm=urls[2])])
    assert [a.label.rpartition("/")[2] for a in grown] == ["m@:1", "m@:2", "m@:3"]
    assert [a.key() for a in grown[:2]] == [Arm(lm=url).key() for url in urls[:2]]
    with pytest.raises(StudyError, match=r"two arms are called .*openai/m@:1.* the same"):
        check_arms([*grown, Arm(lm=urls[0])])


def test_names_that_hold_an_at_sign_and_no_endpoint_are_whole(tmp_path):
    arms = [Arm(planner=f"reference(noise=0.{n})", workflow=f"mine@{n}:flow") for n in (1, 2)]
    assert [a.label for a in arms] == [
        f"reference(noise=0.{n}) × never × mine@{n}:flow" for n in (1, 2)
    ]
    folder = tmp_path / "a@b"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.json").write_text('["x"]')
    arms = grid(lm=[f"scripted:{folder}/{name}.json" for name in ("one", "two")])
    assert len({a.label for a in arms}) == 2
    assert all(a.label.endswith(f"{n}.json") for a, n in zip(arms, ("one", "two"), strict=True))


def test_an_address_with_a_secret_is_refused_without_it():
    for end in ("http://bob:hunter2@h/v1", "http://h/v1?key=hunter2"):
        with pytest.raises(StudyError, match="'h' holds a user, password or query") as told:
            grid(lm=["openai/m@http://h/v1", f"openai/m@{end}"])
        assert "hunter2" not in str(told.value)


# ---- a study ---------------------------------------------------------------------------------


class Endpoint(ThreadingHTTPServer):
    """Answers every request with its own name, and counts them."""

    daemon_threads = True

    def __init__(self, says):
        super().__init__(("127.0.0.1", 0), Handler)
        self.says, self.asked = says, 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def lm(self):
        return f"openai/m@http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked += "Say ready." not in text  # a study asks whether anyone is there
        message = {"role": "assistant", "content": self.server.says}
        data = json.dumps({
            "id": "r", "object": "chat.completion", "created": 0, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def endpoints(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    servers = [Endpoint("I am the first."), Endpoint("I am the second.")]
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


def study(endpoints, out, **options):
    arms = grid(planner="search", lm=[e.lm for e in endpoints])
    return Study(arms, SUITE, seeds=2, out=out, controls=False, **options)


def told(made):
    calls = made.lm_calls
    return {arm: set(replies) for arm, replies in calls.groupby("arm")["reply"]}


def test_two_endpoints_are_compared(endpoints, tmp_path):
    made = study(endpoints, tmp_path)
    made.run(processes=1)
    labels = [f"search × never × openai/m@:{e.server_port}" for e in endpoints]
    expected = {label: {e.says} for label, e in zip(labels, endpoints, strict=True)}
    assert told(made) == expected
    assert sorted(made.leaderboard()["arm"]) == sorted(labels)
    again = al.Study.open(tmp_path)
    assert [a.label for a in again.arms] == labels
    assert told(again) == expected
    asked = [e.asked for e in endpoints]
    more = study(endpoints, tmp_path)
    more.run(processes=1)
    assert [e.asked for e in endpoints] == asked
    one = Study.open(tmp_path)
    one.run(processes=1)
    assert [a.label for a in one.arms] == labels
    assert model_of(endpoints[0].lm) == "openai/m"


@pytest.mark.parametrize("way", [(1, 1), (1, 8), (2, 1)], ids=str)
def test_endpoints_that_share_a_recording_share_no_reply(endpoints, tmp_path, way):
    tape = tmp_path / "calls.jsonl"
    made = study(endpoints, tmp_path / "one", record=tape)
    made.run(processes=way[0], threads=way[1])
    replies = told(made)
    assert sorted(map(sorted, replies.values())) == [["I am the first."], ["I am the second."]]
    asked = [e.asked for e in endpoints]
    lines = [json.loads(line) for line in tape.read_text().splitlines()]
    assert [sum(line["endpoint"] in e.lm for line in lines) for e in endpoints] == asked
    assert lines == Recording(tape).lines()
    again = study(endpoints, tmp_path / "two", record=tape)
    again.run(processes=1)
    assert told(again) == replies
    assert [e.asked for e in endpoints] == asked
    assert len(told(Study.open(tmp_path / "two"))) == 2
    arms = grid(planner="search", lm=f"recorded:{tape}")
    alone = Study(arms, SUITE, seeds=1, out=tmp_path / "three", controls=False)
    alone.run(processes=1)
    missed = alone.lm_calls["error"]
    assert missed.str.contains("what it holds is of the endpoint http://127.0.0.1").all()
    assert len(missed)


def test_one_endpoint_is_recorded_without_its_address(endpoints, tmp_path):
    """So the recording is served wherever the server has moved to."""
    tape = tmp_path / "calls.jsonl"
    study(endpoints[:1], tmp_path / "one", record=tape).run(processes=1)
    assert "127.0.0.1" not in tape.read_text()
    moved = study(endpoints[1:], tmp_path / "two", record=tape)
    moved.run(processes=1)
    assert endpoints[1].asked == 0
    assert set().union(*told(moved).values()) == {"I am the first."}


def test_scripts_that_share_a_recording_share_no_reply(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps([{"when": "", "say": f"I am {name}."}]))
    arms = grid(planner="search", lm=[f"scripted:{tmp_path}/{n}.json" for n in ("one", "two")])
    made = Study(arms, SUITE, seeds=1, out=tmp_path / "out", record=tmp_path / "calls.jsonl",
                 controls=False)  # fmt: skip
    made.run(processes=1)
    assert sorted(map(sorted, told(made).values())) == [["I am one."], ["I am two."]]


def test_models_that_are_objects_share_no_reply(endpoints, tmp_path):
    models = [connect(e.lm) for e in endpoints]
    arms = grid(planner="search", lm=models)
    made = Study(arms, SUITE, seeds=1, record=tmp_path / "calls.jsonl", controls=False)
    made.run(processes=1)
    assert sorted(map(sorted, told(made).values())) == [["I am the first."], ["I am the second."]]
    assert len({a.label for a in arms}) == 2
