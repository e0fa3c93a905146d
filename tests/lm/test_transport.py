"""Endpoints that are slow, endless or elsewhere: raw bytes on loopback, against a call's bounds."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pickle
import socket
import socketserver
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import SecretStr

from agentlab.errors import (
    ConfigError,
    LMError,
    LMMalformed,
    LMRejected,
    LMTimeout,
    LMUnavailable,
    UnknownNameError,
)
from agentlab.lm import endpoint as endpoint_module, transport
from agentlab.lm.connect import connect
from agentlab.lm.deadline import Late, each_until, left, now, until
from agentlab.lm.door import lm_errors
from agentlab.lm.endpoint import ENDPOINT_KEY
from agentlab.lm.routes import COMPATIBLE, PREFIXES
from agentlab.lm.settings import ModelSettings

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'


def drips(head, piece):
    """Send a little, for ever, with short pauses."""

    def behave(connection):
        connection.sendall(head)
        while not connection.over.wait(0.05):
            connection.sendall(piece)

    return behave


def floods(head, piece):
    """Send as much as is taken, for ever."""

    def behave(connection):
        connection.sendall(head)
        while not connection.over.is_set():
            connection.sendall(piece)

    return behave


def answers(body, head=b""):
    body = body if isinstance(body, bytes) else body.encode()
    return lambda connection: connection.sendall(
        OK + head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    )


def fails(status, more=b""):
    head = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n%s\r\n" % (status, more)
    return lambda connection: connection.sendall(head)


def replies(message='{"role":"assistant","content":"hi"}', finish='"stop"', usage="{}"):
    choice = f'{{"index":0,"finish_reason":{finish},"message":{message}}}'
    return answers(f'{{"id":"x","model":"m","choices":[{choice}],"usage":{usage}}}')


def whole(sock):
    """Read a request with its body: what is closed unread resets the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(1 << 16) or b"\r\n\r\n"
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    while len(body) < length:
        body += sock.recv(1 << 16) or b" " * length
    return head + b"\r\n\r\n" + body


@pytest.fixture
def serve(monkeypatch):
    """Start a server of one behaviour; returns its address, and counts requests in ``asked``."""
    for name in [n for n in os.environ if n.endswith(("_API_KEY", "_BASE_URL", "_API_BASE"))]:
        monkeypatch.delenv(name)
    over, servers = threading.Event(), []

    def start(behave):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                try:
                    asked.append(whole(self.request))
                    behave(Connection(self.request))
                except OSError:
                    pass

        class Connection:
            def __init__(self, sock):
                self.sendall, self.over = sock.sendall, over

        asked = []
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        start.asked = asked
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    over.set()
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(address, *, name="openai/m", timeout=5.0, stream=False, **options):
    model = connect(f"{name}@{address}", timeout=timeout, **options)
    try:
        with lm_errors():
            return model.lm(on_token=(lambda token: None) if stream else None)("hi")[0]
    finally:
        model.close()


def sockets():
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
        except OSError:
            continue
    return count


# ---- time ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behave", "stream"),
    [
        (drips(b"", b"H"), False),
        (drips(b"HTTP/1.1 200 OK\r\nX-A: ", b"a"), False),
        (drips(OK + b"\r\n", b" "), False),
        (drips(CHUNKED, b"1\r\n \r\n"), False),
        (drips(CHUNKED + b"1\r\n \r\n0\r\n", b"a: b\r\n"), False),
        (drips(b"HTTP/1.1 500 X\r\n\r\n", b" "), False),
        (drips(EVENTS, b"a"), True),
        (drips(EVENTS, b":\n\n"), True),
        (drips(EVENTS, DELTA), True),
    ],
    ids=["status", "head", "body", "chunks", "trailer", "error", "line", "comments", "events"],
)
def test_a_byte_now_and_then_does_not_keep_a_call(serve, behave, stream):
    address = serve(behave)
    before = sockets()
    started = now()
    with pytest.raises(LMTimeout, match=r"in time: the 0\.6 s of a call are over"):
        ask(address, timeout=0.6, stream=stream)
    assert now() - started < 10  # alone it would have no end
    assert len(serve.asked) == 1  # it may have been done, and charged
    assert sockets() <= before + 1  # the server's side of it


@pytest.mark.parametrize("wait", [b"Retry-After: 7\r\n", b""])
def test_waits_between_attempts_are_part_of_the_call(serve, wait):
    waits = []
    with pytest.raises(LMTimeout, match=r"too late for the 0\.2 s of a call; .* HTTP 503"):
        ask(serve(fails(503, wait)), timeout=0.2, sleep=waits.append)
    assert waits == []  # nor is anything waited for that comes too late


@pytest.mark.parametrize("said", [b"nan", b"-5", b"inf", b"x", b"9" * 400])
def test_a_wait_that_is_no_number_is_none(serve, said):
    waits = []
    with pytest.raises(LMUnavailable):
        ask(serve(fails(429, b"Retry-After: " + said + b"\r\n")), sleep=waits.append)
    assert all(0 <= w < 3 for w in waits)


def test_who_is_held_by_a_rate_limit_waits_no_longer_than_a_call(serve):
    address = serve(fails(429, b"Retry-After: 50\r\n"))
    model = connect(f"openai/m@{address}", timeout=60, sleep=lambda seconds: None)
    with pytest.raises(LMError), lm_errors():
        model.lm()("hi")
    model.engine.timeout = 5.0
    with pytest.raises(LMTimeout, match="too many requests"), lm_errors():
        model.lm()("hi")
    model.close()


def test_a_name_that_is_not_found_out_in_time(monkeypatch):
    let_go = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: let_go.wait(30) and [])
    with pytest.raises(LMTimeout, match="in time"):
        ask("http://no.such.host", timeout=0.3)
    let_go.set()


def test_a_name_that_cannot_be_one_cannot_be_reached():
    with pytest.raises(LMUnavailable, match="cannot be reached"):
        ask(f"http://{'a' * 70}.example", retries=0)


def test_a_handshake_that_does_not_come(serve):
    address = serve(drips(b"", b""))
    with pytest.raises(LMTimeout, match="in time"):
        ask(address.replace("http:", "https:"), timeout=0.4)


def test_a_moment_holds_for_what_is_done_and_not_for_who_takes_it():
    def parts():
        for _ in range(2):
            yield left()

    assert left() == float("inf")
    steps = each_until(now() + 50, parts())
    assert 0 < next(steps) <= 50
    assert left() == float("inf")  # nothing leaks to who takes the parts
    with until(now() + 5), until(now() + 100):
        assert left() <= 5  # the earlier one goes on to hold
        with until(now() - 1), pytest.raises(Late):
            left()


# ---- size ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behave", "words", "stream"),
    [
        (floods(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 1000), "head exceeded", False),
        (floods(OK + b"\r\n", b" " * 65536), "more than 1 MB", False),
        (floods(b"HTTP/1.1 429 X\r\n\r\n", b" " * 65536), "more than 1 MB", False),
        (floods(EVENTS, b"data: " + b"x" * 65536), "more than 1 MB", True),
        (floods(EVENTS, b":\n" * 9000), "exceeds limit|more than 1 MB", True),
        (floods(EVENTS, DELTA * 500), "more than 1 MB", True),
        (answers(gzip.compress(b"0" * (8 << 20)), b"Content-Encoding: gzip\r\n"), "1 MB", False),
        (answers(gzip.compress(gzip.compress(b"0" * (8 << 20))),
                 b"Content-Encoding: gzip, gzip\r\n"), "packed more than once", False),
    ],
    ids=["head", "body", "error", "line", "comments", "events", "packed", "packed twice"],
)  # fmt: skip
def test_a_reply_has_an_end(serve, monkeypatch, behave, words, stream):
    monkeypatch.setattr(transport, "LONGEST_REPLY", 1 << 20)
    with pytest.raises(LMMalformed, match=f"sent what is no reply: .*({words})"):
        ask(serve(behave), timeout=60, stream=stream)
    assert len(serve.asked) == 1


def test_a_packed_reply_is_read(serve):
    body = gzip.compress(json.dumps({"choices": [{"message": {"content": "hi"}}]}).encode())
    assert ask(serve(answers(body, b"Content-Encoding: gzip\r\n"))) == "hi"


def test_what_an_endpoint_says_of_its_error_is_shortened(serve):
    body = json.dumps({"error": {"message": "no " * 100_000}}).encode()
    head = b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n" % len(body)
    with pytest.raises(LMRejected) as caught:
        ask(serve(lambda connection: connection.sendall(head + body)))
    assert len(str(caught.value)) < endpoint_module.LONGEST_MESSAGE + 200


# ---- form ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behave",
    [
        answers(b'{"choices":[{"message":{"content":"\xff\xfe"}}]}'),
        answers("[" * 100_000 + "]" * 100_000),
        replies(message='{"content":' + "[" * 5000 + "]" * 5000 + "}"),
        replies(message='{"content":5}'),
        replies(message='{"content":{"a":1}}'),
        replies(message='{"content":[1]}'),
        replies(message='"hi"'),
        replies(usage='{"prompt_tokens":"many"}'),
        replies(usage='{"prompt_tokens":1e999}'),
        replies(usage='{"prompt_tokens":NaN}'),
        replies(usage='{"prompt_tokens":-1}'),
        replies(usage='{"prompt_tokens":%s}' % ("9" * 5000)),
        replies(usage='{"completion_tokens":%s}' % ("9" * 300)),
        replies(usage="[1]"),
        answers('{"choices":"hi"}'),
        answers('{"choices":[5]}'),
        answers("5"),
        answers("null"),
        answers("", b"Content-Encoding: br\r\n"),
        fails(204),
        lambda connection: connection.sendall(b"SSH-2.0 hello\r\n\r\n"),
        lambda connection: connection.sendall(b"HTTP/1.1 abc\r\n\r\n"),
        lambda connection: connection.sendall(OK + b"Content-Length: x\r\n\r\n"),
    ],
)
def test_what_is_no_reply_is_malformed(serve, behave):
    with pytest.raises(LMMalformed, match="sent what is no reply"):
        ask(serve(behave))
    assert len(serve.asked) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.sampled_from(["choices", "choice", "message", "content", "usage", "finish_reason",
                              "tool_calls", "call", "arguments"]),
       value=json_values, stream=st.booleans())  # fmt: skip
def test_any_value_at_any_place_is_a_reply_or_one_of_our_errors(serve, place, value, stream):
    call = {"id": "c", "type": "function", "function": {"name": "n", "arguments": "{}"}}
    if place == "arguments":
        call["function"]["arguments"] = value
    message = {"role": "assistant", "content": "hi"}
    if place in ("content", "tool_calls"):
        message[place] = value
    elif place in ("call", "arguments"):
        message["tool_calls"] = [value if place == "call" else call]
    choice = {"index": 0, "finish_reason": "stop"}
    choice["delta" if stream else "message"] = value if place == "message" else message
    if place == "finish_reason":
        choice[place] = value
    reply = {"id": "x", "model": "m", "usage": {}, "choices": [choice]}
    if place in ("choices", "usage"):
        reply[place] = value
    elif place == "choice":
        reply["choices"] = [value]
    body = json.dumps(reply).encode()
    if stream:
        data = EVENTS + b"data: " + body + b"\n\ndata: [DONE]\n\n"
        address = serve(lambda connection: connection.sendall(data))
    else:
        address = serve(answers(body))
    with contextlib.suppress(LMError):
        ask(address, stream=stream, retries=0)


# ---- where ---------------------------------------------------------------------------------

ROUTES = sorted({*PREFIXES, *COMPATIBLE})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("stream", [False, True])
def test_no_redirect_is_followed(serve, status, stream):
    other = serve(replies())
    elsewhere = serve.asked
    address = serve(fails(status, b"Location: %s/x\r\n" % other.encode()))
    with pytest.raises(LMRejected, match=f"redirects the request .HTTP {status}.; that is not"):
        ask(address, stream=stream)
    assert (len(serve.asked), elsewhere) == (1, [])


@pytest.mark.parametrize("prefix", ROUTES)
def test_no_route_follows_a_redirect_or_gives_a_vendors_key_away(serve, monkeypatch, prefix):
    other = serve(replies())
    elsewhere = serve.asked
    address = serve(fails(307, b"Location: %s/x\r\n" % other.encode()))
    monkeypatch.setenv(ENDPOINT_KEY, "key-of-the-address")
    for name in (prefix, prefix.partition("_")[0], "AZURE_OPENAI", "GOOGLE"):
        monkeypatch.setenv(f"{name.upper()}_API_KEY", "key-of-the-vendor")
    with pytest.raises(LMRejected, match="redirects the request"):
        ask(address, name=f"{prefix}/some-model")
    assert b"key-of-the-address" in serve.asked[0]
    assert b"key-of-the-vendor" not in serve.asked[0]
    assert elsewhere == []


@pytest.mark.parametrize("prefix", ROUTES)
def test_every_route_ends_in_time(serve, monkeypatch, prefix):
    monkeypatch.setenv(ENDPOINT_KEY, "key-of-the-address")
    address = serve(drips(OK + b"\r\n", b" "))
    with pytest.raises(LMTimeout, match=r"in time: the 0\.2 s"):
        ask(address, name=f"{prefix}/some-model", timeout=0.2)


ANTHROPIC = {"id": "m", "type": "message", "role": "assistant", "model": "m",
             "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn",
             "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
GEMINI = {"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]},
                          "finishReason": "STOP"}]}  # fmt: skip
OPENAI = {"choices": [{"message": {"role": "assistant", "content": "hi"}}]}


@pytest.mark.parametrize("by", ["address", "environment"])
@pytest.mark.parametrize(
    ("prefix", "variable", "path", "reply"),
    [
        ("anthropic", "ANTHROPIC_BASE_URL", "/v1/messages", ANTHROPIC),
        ("gemini", "GEMINI_API_BASE", "/v1beta/models/x:generateContent", GEMINI),
        ("groq", "GROQ_API_BASE", "/openai/v1/chat/completions", OPENAI),
        ("deepseek", "DEEPSEEK_API_BASE", "/chat/completions", OPENAI),
        ("xai", "XAI_API_BASE", "/v1/chat/completions", OPENAI),
        ("azure", "AZURE_API_BASE", "/openai/v1/chat/completions", OPENAI),
        ("ollama_chat", "OLLAMA_API_BASE", "/v1/chat/completions", OPENAI),
    ],
)
def test_a_vendor_is_asked_at_its_own_path(serve, monkeypatch, by, prefix, variable, path, reply):
    address = serve(answers(json.dumps(reply)))
    if by == "address":
        monkeypatch.setenv(ENDPOINT_KEY, "some-key")
        model = connect(f"{prefix}/x@{address}", timeout=5)
    else:
        monkeypatch.setenv(f"{prefix.upper()}_API_KEY", "some-key")
        monkeypatch.setenv(variable, address)
        model = connect(f"{prefix}/x", timeout=5)
    assert model.lm()("hi") == ["hi"]
    model.close()
    assert serve.asked[0].startswith(f"POST {path} ".encode())
    assert (b"some-key" in serve.asked[0]) is (prefix != "ollama_chat" or by == "address")


@pytest.mark.parametrize("name", ["mistral/x", "cohere/x", "bedrock/x", "vertex_ai/x", "togther/x"])
def test_a_vendor_that_is_not_asked_by_name(name):
    with pytest.raises(UnknownNameError, match=r"unknown LM provider .*; known: anthropic") as e:
        connect(name)
    assert "'openai/x@https://...'" in str(e.value)
    assert "an engine of your own" in str(e.value)


def test_a_vendor_that_is_misspelt_at_an_address():
    with pytest.raises(UnknownNameError, match="did you mean 'together_ai'"):
        connect("togther_ai/x@http://127.0.0.1:9/v1")


@pytest.mark.parametrize("name", ["azure/x", "xai/x", "grok-4"])
def test_who_would_be_asked_with_a_login_of_the_machine_needs_a_key(serve, name):
    with pytest.raises(ConfigError, match="is asked with a key: set "):
        connect(name)


def test_no_supported_route_imports_litellm():
    code = (
        "import os, sys\n"
        f"os.environ.update({{'{ENDPOINT_KEY}': 'k-1234567', 'ANTHROPIC_BASE_URL': 'http://h'}})\n"
        "from agentlab.lm.connect import connect\n"
        "from agentlab.lm.routes import COMPATIBLE, PREFIXES\n"
        "for p in {*PREFIXES, *COMPATIBLE}: connect(f'{p}/x@http://127.0.0.1:9/v1')\n"
        "connect('anthropic/x'); connect('gpt-4o'); connect('claude-3')\n"
        "assert 'litellm' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# ---- keys ----------------------------------------------------------------------------------


def test_settings_with_a_key_do_not_cross_processes():
    keyed = ModelSettings(model_id="m", api_key=SecretStr("sk-hunter2-value"))
    with pytest.raises(ConfigError, match="hold a key and do not cross processes"):
        pickle.dumps(keyed)
    bare = ModelSettings(model_id="m", temperature=0.5)
    assert pickle.loads(pickle.dumps(bare)) == bare


@pytest.mark.parametrize("name", ["openai/m", "anthropic/m", "azure/m", "ollama/m"])
def test_no_object_of_a_connected_model_shows_its_key(serve, name):
    key = SecretStr("sk-hunter2-value")
    model = connect(f"{name}@{serve(fails(401))}", ModelSettings(model_id="m", api_key=key))
    with pytest.raises(LMError), lm_errors():
        model.lm()("hi")
    assert b"sk-hunter2-value" in serve.asked[0]
    seen, queue, shown = set(), [model, model.lm()], []
    while queue:
        thing = queue.pop()
        if id(thing) in seen or type(thing).__module__.split(".")[0] not in ("agentlab", "dspy"):
            continue
        seen.add(id(thing))
        fields = getattr(thing, "__dict__", {})
        shown += [repr(thing), repr(fields)]
        queue += [*fields.values()]
    model.close()
    assert len(seen) > 5
    assert not [text for text in shown if "hunter2" in text]
    with pytest.raises(ConfigError, match="connect there"):
        pickle.dumps(model)
