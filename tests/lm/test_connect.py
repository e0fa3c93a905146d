"""Connecting to endpoints: a small server on loopback plays one, well and badly."""

from __future__ import annotations

import json
import pickle
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import BaseModel, SecretStr

import agentlab as al
from agentlab.errors import (
    ConfigError,
    LMCutOff,
    LMDenied,
    LMError,
    LMMalformed,
    LMRateLimited,
    LMRefused,
    LMRejected,
    LMTimeout,
    LMTooLong,
    LMUnavailable,
    LMUnknownModel,
    UnknownNameError,
)
from agentlab.lm.connect import connect, parse
from agentlab.lm.door import lm_errors
from agentlab.lm.endpoint import ENDPOINT_KEY, blot
from agentlab.lm.recording import Recording
from agentlab.lm.serde import load_dspy
from agentlab.lm.settings import ModelSettings

CANARY = "sk-canary/7f3a+2b9c="


# ---- the endpoint --------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """Plays an OpenAI-compatible endpoint: one scripted behaviour a request."""

    daemon_threads = True

    def __init__(self, *behaviours):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours, self.asked = list(behaviours), []
        self.let_go = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    def stop(self):
        self.let_go.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, dict(self.headers), body))
        self.server.behaviours.pop(0)(self)

    def send(self, status, data, kind="application/json", **headers):
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


def says(text, finish="stop", **message):
    reply = {
        "id": "r1",
        "model": "local-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, **message},
                "finish_reason": finish,
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    return lambda handler: handler.send(200, reply)


def fails(status, message="no", code=None, **headers):
    body = {"error": {"message": message, "code": code, "type": "e"}}
    return lambda handler: handler.send(status, body, **headers)


def streams(*pieces, end=True):
    def behave(handler):
        chunks = [{"delta": {"role": "assistant", "content": p}} for p in pieces]
        chunks += [{"delta": {}, "finish_reason": "stop"}] if end else []
        frames = [{"id": "r", "model": "local-1", "choices": [{"index": 0, **c}]} for c in chunks]
        usage = {"prompt_tokens": 7, "completion_tokens": len(pieces)}
        frames += [{"id": "r", "model": "local-1", "choices": [], "usage": usage}] if end else []
        lines = [f"data: {json.dumps(f)}\n\n" for f in frames] + ["data: [DONE]\n\n"] * end
        handler.send(200, "".join(lines).encode(), "text/event-stream")

    return behave


def hangs(handler):
    handler.server.let_go.wait(10)
    handler.close_connection = True


def hangs_up(handler):
    handler.close_connection = True
    handler.connection.close()


@pytest.fixture
def endpoint():
    servers = []

    def start(*behaviours):
        servers.append(Server(*behaviours))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(autouse=True)
def no_ambient_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", ENDPOINT_KEY):
        monkeypatch.delenv(name, raising=False)


class Asked:
    """A connected model with its calls and waits at hand."""

    def __init__(self, server, settings=None, **options):
        self.waits, self.calls = [], []
        url = server if isinstance(server, str) else server.url
        options = {"timeout": 5.0, "sleep": self.waits.append, **options}
        self.model = connect(f"openai/local@{url}", settings, **options)

    def __call__(self, prompt="hi", **options):
        lm = self.model.lm(on_call=self.calls.append, **options)
        try:
            with lm_errors(), load_dspy().context(disable_history=True):
                return lm(prompt)[0]
        finally:
            self.model.close()


# ---- replies -------------------------------------------------------------------------------


def test_a_reply(endpoint):
    server = endpoint(says("hello"))
    settings = ModelSettings(model_id="any", max_tokens=9, temperature=0.0, top_p=0.5)
    ask = Asked(server, settings)
    assert ask("hi") == "hello"
    path, headers, body = server.asked[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer none"
    assert body == {
        "model": "local",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 9,
        "temperature": 0.0,
        "top_p": 0.5,
    }
    (call,) = ask.calls
    assert call.usage == {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    assert (call.model, call.served, call.attempts, call.error) == ("openai/local", False, 1, None)
    assert call.request["config"] == {"max_tokens": 9, "temperature": 0.0, "top_p": 0.5}
    assert call.response["message"]["parts"] == [{"type": "text", "text": "hello"}]
    assert call.cost is None
    assert call.billed is None
    assert ask.model.describe() == {
        "model": "openai/local",
        "base_url": server.url,
        "settings": {"max_tokens": 9, "temperature": 0.0, "top_p": 0.5},
        "supports": ["response_format", "response_schema"],
    }


def test_a_json_schema_is_sent(endpoint):
    dspy = load_dspy()

    class Step(BaseModel):
        tool: str
        seconds: int

    server = endpoint(says('{"step": {"tool": "kettle", "seconds": 3}}'))
    model = connect(f"openai/local@{server.url}")
    adapter = dspy.JSONAdapter(use_native_function_calling=False)
    with dspy.context(lm=model.lm(), adapter=adapter):
        found = dspy.Predict(
            dspy.Signature({"task": (str, dspy.InputField()), "step": (Step, dspy.OutputField())})
        )(task="tea")
    model.close()
    assert found.step == Step(tool="kettle", seconds=3)
    sent = server.asked[0][2]["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"]["$defs"]["Step"]["required"] == ["tool", "seconds"]


def test_without_a_schema_where_the_endpoint_has_none(endpoint):
    server = endpoint(says("hello"))
    model = connect(f"openai/local@{server.url}", response_schema=False)
    assert model.supports == ("response_format",)
    tools = ModelSettings(model_id="local", supports_function_call=True)
    assert "function_calling" in connect(f"openai/local@{server.url}", tools).supports


def test_tokens_as_they_come(endpoint):
    server = endpoint(streams("he", "l", "lo"))
    tokens = []
    ask = Asked(server)
    assert ask(on_token=tokens.append) == "hello"
    assert tokens == ["he", "l", "lo"]
    assert server.asked[0][2]["stream"] is True
    assert ask.calls[0].usage["output_tokens"] == 3


def test_an_endpoint_that_cannot_stream(endpoint):
    server, tokens = endpoint(says("hello")), []
    ask = Asked(server, ModelSettings(model_id="local", supports_streaming=False))
    assert ask(on_token=tokens.append) == "hello"
    assert tokens == ["hello"]
    assert "stream" not in server.asked[0][2]


def test_a_cut_off_reply(endpoint):
    ask = Asked(endpoint(says("half a", finish="length"), says("half a", finish="length")))
    with pytest.raises(LMCutOff, match="cut off at the token limit after 6 characters") as caught:
        ask()
    assert caught.value.partial == "half a"
    assert ask.calls[0].response is not None
    assert ask.calls[0].usage["output_tokens"] == 3
    assert ask.calls[0].error.startswith("LMCutOff: ")


def test_a_cut_off_reply_where_it_will_do(endpoint, caplog):
    assert Asked(endpoint(says("half a", finish="length")))(strict=False) == "half a"


@pytest.mark.parametrize(
    "behaviour",
    [says(None, refusal="I will not."), says("I will not.", finish="content_filter")],
    ids=["refusal", "filter"],
)
def test_a_refused_reply(endpoint, behaviour):
    with pytest.raises(LMRefused, match=r"declined to answer: 'I will not\.'") as caught:
        Asked(endpoint(behaviour))()
    assert caught.value.partial == "I will not."


# ---- failures ------------------------------------------------------------------------------


def test_too_many_requests_and_how_long_to_wait(endpoint):
    ask = Asked(endpoint(fails(429, Retry_After="2"), says("hello")))
    assert ask() == "hello"
    assert ask.waits == [2.0]
    assert ask.calls[0].attempts == 2


def test_a_wait_that_is_too_long_is_not_waited(endpoint):
    ask = Asked(endpoint(fails(429, Retry_After="3600")))
    with pytest.raises(LMRateLimited, match="HTTP 429") as caught:
        ask()
    assert caught.value.retry_after == 3600
    assert ask.waits == []


def test_a_failing_endpoint_is_asked_again(endpoint):
    ask = Asked(endpoint(fails(500), fails(503), says("hello")))
    assert ask() == "hello"
    first, second = ask.waits
    assert 0.375 <= first <= 0.625
    assert 0.75 <= second <= 1.25


def test_and_given_up(endpoint):
    server = endpoint(fails(500), fails(502), fails(500))
    ask = Asked(server)
    with pytest.raises(LMUnavailable, match=f"openai/local at {server.url} failed: HTTP 500") as e:
        ask()
    assert e.value.status == 500
    assert e.value.__notes__ == ["asked 3 times"]
    assert len(server.asked) == 3
    assert ask.calls[0].response is None
    assert ask.calls[0].error.startswith("LMUnavailable: ")


def test_no_reply_in_time(endpoint):
    server = endpoint(hangs)
    started = time.monotonic()
    with pytest.raises(LMTimeout, match="gave no reply in time"):
        Asked(server, timeout=0.2)()
    assert time.monotonic() - started < 3
    assert len(server.asked) == 1  # it may have been done, and charged: not repeated


def test_nobody_there(endpoint):
    server = endpoint()
    server.stop()
    ask = Asked(server.url, retries=1)
    with pytest.raises(LMUnavailable, match="cannot be reached"):
        ask()
    assert len(ask.waits) == 1


def test_a_connection_that_breaks(endpoint):
    ask = Asked(endpoint(hangs_up, says("hello")))
    assert ask() == "hello"
    assert len(ask.waits) == 1


@pytest.mark.parametrize(
    "data",
    [b"<html>busy</html>", b'{"id": "r1"}', b'{"choices": []}', b'{"choices": [{}]}', b"[]", b""],
    ids=["html", "nothing", "no choice", "no message", "list", "empty"],
)
def test_what_is_no_reply(endpoint, data):
    ask = Asked(endpoint(lambda handler: handler.send(200, data)))
    with pytest.raises(LMMalformed, match="sent what is no reply"):
        ask()
    assert ask.waits == []


def test_a_stream_that_breaks_off(endpoint):
    tokens = []
    ask = Asked(endpoint(streams("he", "l", end=False)))
    with pytest.raises(LMMalformed, match="broke off its stream"):
        ask(on_token=tokens.append)
    assert tokens == ["he", "l"]
    assert ask.waits == []


def test_a_stream_that_does_not_begin_is_asked_again(endpoint):
    ask = Asked(endpoint(fails(503), streams("hello")))
    assert ask(on_token=print) == "hello"
    assert ask.calls[0].attempts == 2


@pytest.mark.parametrize(
    ("behaviour", "kind", "words"),
    [
        (fails(400, "too long", code="context_length_exceeded"), LMTooLong, "too long"),
        (fails(404, "no model 'x'", code="model_not_found"), LMUnknownModel, "no model 'x'"),
        (fails(400, "no model 'x'", code="model_not_found"), LMUnknownModel, "no model 'x'"),
        (fails(404, "no model 'x'"), LMUnknownModel, "does not know the model: HTTP 404"),
        (fails(400, "bad schema"), LMRejected, "bad schema"),
        (fails(402, "pay"), LMDenied, "pay"),
        (fails(403, "not you"), LMDenied, f"set {ENDPOINT_KEY}"),
        (fails(429, "quota", code="insufficient_quota"), LMDenied, "quota"),
        (fails(418, "teapot"), LMRejected, "teapot"),
    ],
)
def test_what_the_endpoint_does_not_accept(endpoint, behaviour, kind, words):
    server = endpoint(behaviour)
    with pytest.raises(kind, match=words) as caught:
        Asked(server)()
    assert type(caught.value) is kind
    assert len(server.asked) == 1


def test_dspy_sees_errors_of_its_own(endpoint):
    dspy = load_dspy()
    model = connect(f"openai/local@{endpoint(fails(400, code='context_length_exceeded')).url}")
    with pytest.raises(dspy.ContextWindowExceededError):
        model.lm()("hi")
    model.close()


# ---- addresses and keys --------------------------------------------------------------------


def test_two_addresses_do_not_meet(endpoint):
    one, two = endpoint(says("one"), says("one")), endpoint(says("two"), says("two"))
    keys = [ModelSettings(model_id="local", api_key=SecretStr(k)) for k in ("key-one", "key-two")]
    asks = [Asked(one, keys[0]), Asked(two, keys[1])]
    assert [ask() for ask in asks] == ["one", "two"]
    assert one.asked[0][1]["Authorization"] == "Bearer key-one"
    assert two.asked[0][1]["Authorization"] == "Bearer key-two"


@pytest.mark.parametrize(
    ("environment", "settings", "sent"),
    [
        ({"OPENAI_API_KEY": "vendor-key"}, None, "none"),
        ({"OPENAI_API_KEY": "vendor-key", ENDPOINT_KEY: " mine\n"}, None, "mine"),
        ({ENDPOINT_KEY: "mine"}, {"model_id": "local", "api_key": "own"}, "own"),
        ({}, {"model_id": "local", "provider": "openai", "api_key": "own"}, "own"),
        ({}, {"model_id": "openai/local", "api_key": "own"}, "own"),
        ({}, {"model_id": "other", "api_key": "own"}, "none"),
        ({}, {"model_id": "local", "provider": "azure", "api_key": "own"}, "none"),
        ({}, {"model_id": "local", "base_url": "http://else.where", "api_key": "own"}, "none"),
    ],
)
def test_a_key_goes_where_it_belongs(endpoint, monkeypatch, environment, settings, sent):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    server = endpoint(says("hello"))
    Asked(server, ModelSettings(**settings) if settings else None)()
    assert server.asked[0][1]["Authorization"] == f"Bearer {sent}"


def test_the_model_of_an_agent(endpoint):
    server = endpoint(says("hello"))
    settings = ModelSettings(
        model_id="local", provider="openai", base_url=server.url, api_key=SecretStr("own")
    )
    model = connect(settings=settings, timeout=5)
    assert model.lm()("hi") == ["hello"]
    model.close()
    assert server.asked[0][1]["Authorization"] == "Bearer own"
    assert model.name == "openai/local"


def test_the_vendors_address_of_the_environment(endpoint, monkeypatch):
    server = endpoint(says("hello"))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "vendor-key")
    model = connect("openai/gpt-4o-mini", timeout=5)
    assert model.lm()("hi") == ["hello"]
    model.close()
    assert server.asked[0][1]["Authorization"] == "Bearer vendor-key"


def test_an_address_that_lacks_its_path(endpoint):
    server = endpoint(fails(404, "no such route"))
    with pytest.raises(LMRejected, match=r"does its address end in /v1\?\): HTTP 404"):
        Asked(server.url.removesuffix("/v1"))()


def test_a_server_for_models_of_ones_own(endpoint, monkeypatch):
    server = endpoint(says("hello"))
    monkeypatch.setenv("OLLAMA_API_BASE", server.url.removesuffix("/v1"))
    model = connect("ollama_chat/qwen2.5:7b", timeout=5)
    assert model.lm()("hi") == ["hello"]
    model.close()
    assert server.asked[0][2]["model"] == "qwen2.5:7b"
    assert "response_schema" in model.supports


def test_a_price_is_estimated(monkeypatch):
    """gpt-4o-mini: 0.15 and 0.60 dollars a million tokens."""
    from agentlab.lm.endpoint import Endpoint
    from agentlab.lm.engine import Notes, noting
    from agentlab.lm.serde import lm15, text_response

    request = lm15().Request(model="openai/gpt-4o-mini", messages=(lm15().Message.user("hi"),))
    model = connect("openai/gpt-4o-mini")
    assert set(model.supports) == {"response_format", "response_schema", "function_calling"}

    class Client:
        def complete(self, request):
            return text_response("x", "gpt-4o-mini", input_tokens=1000, output_tokens=500)

    engine = Endpoint(Client(), model.name, model.name, "gpt-4o-mini", vendor="openai-chat")
    current = Notes(request)
    with noting(current):
        engine.complete(request)
    assert current.cost == pytest.approx(0.15e-3 + 0.3e-3)


def test_a_missing_key_is_named():
    model = connect("openai/gpt-4o-mini")
    with pytest.raises(LMDenied, match="set OPENAI_API_KEY"), lm_errors():
        model.lm()("hi")


@pytest.mark.parametrize(
    "text",
    ["", "openai/", "/x", "@http://127.0.0.1/v1", "openai/x@http://user:pw@host/v1",
     "openai/x@http://host/v1?api-key=1", "openai/x@http:///v1", "no-such-model", "recorded",
     "openai/x?", "openai/x?heat=1", "openai/x?temperature=warm", "openai/x?temperature=-1",
     "openai/x?max_tokens=1.5", "openai/x?timeout=0", "openai/x?temperature", "openai/x?retries=-1",
     "openai/x?retries=1.5", "openai/x?retries=inf", "openai/x?retries=nan"],
)  # fmt: skip
def test_names_that_name_nothing(text):
    with pytest.raises((ConfigError, UnknownNameError)) as caught:
        connect(text)
    assert "pw" not in str(caught.value)


def test_a_vendor_that_speaks_openais_chat_completions_at_an_address(endpoint, monkeypatch):
    monkeypatch.setenv("TOGETHERAI_API_KEY", "vendor-key")
    server = endpoint(says("hello"), fails(401, f"bad {CANARY}"), fails(503), hangs)
    model = connect(f"together_ai/some/model@{server.url}", timeout=5)
    calls = []
    assert model.lm(on_call=calls.append, temperature=0.0)("hi") == ["hello"]
    path, headers, body = server.asked[0]
    assert (path, headers["Authorization"]) == ("/v1/chat/completions", "Bearer none")
    assert (body["model"], body["temperature"]) == ("some/model", 0.0)
    assert calls[0].usage["output_tokens"] == 3
    settings = ModelSettings(model_id="some/model", api_key=SecretStr(CANARY))
    keyed = connect(f"together_ai/some/model@{server.url}", settings, retries=0, timeout=0.5)
    with pytest.raises(LMDenied) as caught, lm_errors():
        keyed.lm()("hi")
    assert server.asked[1][1]["Authorization"] == f"Bearer {CANARY}"
    assert not [s for s in spellings() if s in everything(caught.value)]
    with pytest.raises(LMUnavailable), lm_errors():
        keyed.lm()("hi")
    with pytest.raises(LMTimeout), lm_errors():
        keyed.lm()("hi")


def test_names_taken_apart():
    assert parse("groq/openai/gpt-oss@20b").wire == "openai/gpt-oss@20b"
    assert parse("a/b@https://h/v1/").url == "https://h/v1"
    assert parse("gpt-4o").prefix == ""


def test_a_name_may_say_how_it_is_asked(endpoint):
    server = endpoint(says("hello"))
    settings = ModelSettings(model_id="any", max_tokens=9, temperature=1.0)
    name = f"openai/local?temperature=0&top_p=0.5@{server.url}"
    model = connect(name, settings, retries=0)
    assert model.lm()("hi") == ["hello"]
    body = server.asked[0][2]
    assert (body["model"], body["max_tokens"]) == ("local", 9)
    assert (body["temperature"], body["top_p"]) == (0.0, 0.5)
    assert model.name == "openai/local"
    model.close()


def test_a_name_may_say_how_long_to_wait(endpoint):
    server = endpoint(hangs)
    with pytest.raises(LMTimeout, match=r"0\.3"), lm_errors():
        connect(f"openai/local?timeout=0.3@{server.url}", retries=0).lm()("hi")


@pytest.mark.parametrize("retries", [0, 3])
def test_a_name_may_say_how_often_it_is_tried_again(endpoint, retries):
    server, waits = endpoint(*[fails(503)] * 9), []
    model = connect(f"openai/local?retries={retries}@{server.url}", retries=7, sleep=waits.append)
    with pytest.raises(LMUnavailable), lm_errors():
        model.lm()("hi")
    assert len(server.asked) == 1 + retries == 1 + len(waits)


# ---- the canary ----------------------------------------------------------------------------


def spellings():
    import base64
    from urllib.parse import quote

    return {CANARY, quote(CANARY, safe=""), base64.b64encode(CANARY.encode()).decode()}


def everything(error):
    """All text that hangs on an error: chain, arguments, attributes, notes, traceback."""
    seen, queue, texts = set(), [error], []
    while queue:
        link = queue.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        queue += [link.__cause__, link.__context__]
        texts += [str(link), repr(link), repr(link.args), repr(vars(link))]
        texts.append("".join(traceback.format_exception(link)))
        texts.append(
            "".join(traceback.TracebackException.from_exception(link, capture_locals=True).format())
        )
    return "\n".join(texts)


@pytest.mark.parametrize("source", ["settings", "environment"])
@pytest.mark.parametrize(
    "behaviour",
    [
        fails(401, f"Incorrect API key provided: {CANARY}."),
        fails(400, f"header Authorization: Bearer {CANARY}"),
        fails(500, f"{CANARY}", X_Request_Id=CANARY),
        lambda handler: handler.send(200, f"<html>{CANARY}</html>".encode()),
        lambda handler: handler.send(401, json.dumps({"error": f"{CANARY!r}"}).encode()),
    ],
    ids=["401", "400", "500", "html", "bare"],
)
def test_a_key_never_gets_out(endpoint, monkeypatch, tmp_path, source, behaviour):
    server = endpoint(behaviour, behaviour)
    settings = None
    if source == "settings":
        settings = ModelSettings(model_id="local", api_key=SecretStr(CANARY))
    else:
        monkeypatch.setenv(ENDPOINT_KEY, CANARY)
    recording = Recording(tmp_path / "calls.jsonl", "record")
    model = connect(f"openai/local@{server.url}", settings, retries=0, timeout=5)
    model = model.recorded(recording)
    calls, texts = [], []
    lm = model.lm(on_call=calls.append)
    with pytest.raises(LMError) as caught, lm_errors():
        lm("hi")
    texts.append(everything(caught.value))
    with pytest.raises(load_dspy().LMError) as caught:
        lm("hi")  # without lm_errors
    texts.append(everything(caught.value))
    model.close()
    assert server.asked[0][1]["Authorization"] == f"Bearer {CANARY}"
    assert len(calls) == 2
    texts += [repr(calls), repr(model), repr(model.engine), repr(lm), repr(vars(lm))]
    texts += [json.dumps(model.describe()), json.dumps(lm.history, default=repr)]
    texts += [path.read_text() for path in tmp_path.iterdir()]
    texts += [repr(model.engine.inner.inner.config), str(lm.engine), repr(lm.engine.inner)]
    assert not [s for s in spellings() for text in texts if s in text]


def test_a_key_in_a_working_call(endpoint, tmp_path):
    server = endpoint(lambda handler: says("hello")(handler))
    settings = ModelSettings(model_id="local", api_key=SecretStr(CANARY))
    model = connect(f"openai/local@{server.url}", settings, timeout=5)
    model = model.recorded(Recording(tmp_path / "calls.jsonl", "record"))
    calls = []
    lm = model.lm(on_call=calls.append)
    lm("hi")
    model.close()
    text = (tmp_path / "calls.jsonl").read_text()
    assert "hello" in text
    texts = [text, repr(calls), repr(lm.history), json.dumps(model.describe())]
    assert not [s for s in spellings() for text in texts if s in text]


def test_a_connected_model_does_not_cross_processes(endpoint):
    model = connect("openai/local@http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="connect there"):
        pickle.dumps(model)


def test_blotting():
    environment = {"MY_TOKEN": "tok-12345678", "SHORT_KEY": "abc", "PATH": "/usr/bin:/usr/local"}
    text = blot("tok-12345678 abc /usr/bin:/usr/local", SecretStr("x"), environment)
    assert text == "[key] abc /usr/bin:/usr/local"
    assert blot("Bearer sk-12\\n", SecretStr("sk-12\n"), {}) == "Bearer [key]"


# ---- tools ---------------------------------------------------------------------------------


def function(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


READY = function("c1", "ready", '{"word": "yes"}')
LOOKS = function("c2", "look", "{}")


def calls(*called, text=None, finish="tool_calls"):
    return says(text, finish, tool_calls=list(called))


@al.tool
def look() -> str:
    """Look around."""
    return "dark"


def with_tools(model, said="go", **options):
    lab = al.Lab(tools=[look], lm=model, **options)
    state = lab.initial_state("x")
    with lab.asking(state) as talk:
        asked = {"role": "user", "parts": [{"type": "text", "text": said}]}
        outcome = talk.ask({"messages": [asked], "tools": [look]})
    return outcome, talk.charged(state), lab.recorder.of_kind("lm")


def sent_tools(server):
    return [[t["function"]["name"] for t in body.get("tools", [])] for _, _, body in server.asked]


def test_an_endpoint_that_calls_tools_is_found_out_once(endpoint):
    server = endpoint(calls(READY), calls(LOOKS), calls(LOOKS, text="Hm."))
    model = Asked(server).model
    assert "function_calling" not in model.supports  # never claimed unasked
    assert (model.probe.found, len(server.asked)) == (None, 0)
    outcome, state, [span] = with_tools(model)
    assert [(c.id, c.name) for c in outcome.tool_calls] == [("c2", "look")]
    assert outcome.finish_reason == "tool_call"
    assert with_tools(model)[0].text == "Hm."
    assert sent_tools(server) == [["ready"], ["look"], ["look"]]
    assert model.probe.found is True
    assert (state.lm_calls, state.lm_tokens, len([span])) == (1, 10, 1)


@pytest.mark.parametrize(
    "answer",
    [says("Yes, I am ready."), fails(400, "tools are not supported"), calls(LOOKS),
     calls(function("c1", "ready", "{"))],
)  # fmt: skip
def test_an_endpoint_that_does_not_is_told_of_tools_by_text(endpoint, answer):
    said = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    server = endpoint(answer, says(said), says("Dark."))
    model = Asked(server).model
    outcome, _, _ = with_tools(model)
    assert (outcome.finish_reason, [c.name for c in outcome.tool_calls]) == ("tool_call", ["look"])
    assert with_tools(model)[0].text == "Dark."
    assert sent_tools(server) == [["ready"], [], []]
    assert model.probe.found is False


@pytest.mark.parametrize(("status", "kind"), [(401, LMDenied), (404, LMUnknownModel)])
def test_a_probe_without_a_reply_finds_nothing(endpoint, status, kind):
    server = endpoint(fails(status), calls(READY), calls(LOOKS))
    model = Asked(server).model
    with pytest.raises(kind):
        with_tools(model)
    assert model.probe.found is None
    assert with_tools(model)[0].finish_reason == "tool_call"


def test_nothing_is_probed_for_requests_without_tools(endpoint):
    server = endpoint(says("hi"))
    ask = Asked(server)
    assert (ask(), ask.model.probe.found, len(server.asked)) == ("hi", None, 1)


@pytest.mark.parametrize("supported", [True, False])
def test_what_the_configuration_declares_is_not_probed(endpoint, supported):
    server = endpoint(calls(LOOKS) if supported else says("Dark."))
    settings = ModelSettings(model_id="local", supports_function_call=supported)
    model = Asked(server, settings).model
    assert model.probe is None
    assert with_tools(model)[0].finish_reason == ("tool_call" if supported else "stop")
    assert sent_tools(server) == [["look"] if supported else []]


@pytest.mark.parametrize("native", [True, False])
def test_a_probe_is_no_part_of_a_recording_nor_made_on_replay(endpoint, tmp_path, native):
    path = tmp_path / "calls.jsonl"
    answers = [calls(READY), calls(LOOKS)] if native else [says("no"), says("Dark.")]
    outcome, state, _ = with_tools(
        Asked(endpoint(*answers)).model.recorded(Recording(path, "record"))
    )
    [line] = Recording(path).lines()
    assert ("tools" in line["request"]) is native
    for mode in ("replay", "replay_or_call"):
        server = endpoint()
        model = Asked(server).model.recorded(Recording(path, mode))
        again, after, [span] = with_tools(model)
        assert (again.response, after.lm_requests) == (outcome.response, state.lm_requests)
        assert span.attributes["served"]
        assert (model.probe.found, server.asked) == (None, [])
    served, _, _ = with_tools(f"recorded:{path}")
    assert served.response == outcome.response


def test_a_vendors_model_is_taken_at_its_word():
    known = connect("openai/gpt-4o-mini")
    assert "function_calling" in known.supports
    assert known.probe is None
