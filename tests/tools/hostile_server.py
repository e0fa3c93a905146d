"""An MCP server that behaves as badly as its argument says; plain Python, it starts at once."""

import base64
import json
import os
import subprocess
import sys
import time
from urllib.parse import quote

behaviour = sys.argv[1]
secret = os.environ.get("MY_SECRET", "")
spelt = {
    "plain": secret,
    "url": quote(secret, safe=""),
    "json": json.dumps({"key": secret}),
    "base64": base64.b64encode(secret.encode()).decode(),
}.get(sys.argv[2] if len(sys.argv) > 2 else "plain", secret)
state = {"calls": 0, "pages": 0}


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def answer(number, **fields):
    say(json.dumps({"jsonrpc": "2.0", "id": number, **fields}))


def do(what, number=0):
    """Do one of the bad things that may be done at any time."""
    if what == "die":
        os._exit(3)
    elif what == "hang":
        time.sleep(600)
    elif what == "junk":
        say("DEBUG " + spelt)
        say('{"debug": "' + secret)
    elif what == "binary":
        sys.stdout.buffer.write(b"\xff\xfe\x00 junk " + secret.encode() + b"\n")
        sys.stdout.buffer.flush()
    elif what == "long":
        while True:
            sys.stdout.write("x" * 1_000_000)
    elif what == "broken":
        say('{"jsonrpc": "2.0", "result": ' + json.dumps(spelt) + "nonsense")
    elif what == "wrong_id":
        answer(number + 1000, result={})
        answer("a text", result={})
        answer(None, error={"code": -32700, "message": spelt})
    elif what == "odd_id":
        say('{"jsonrpc": "2.0", "id": {"a": 1}, "result": {}}')
    elif what == "notify":
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message",
                           "params": {"level": "error", "data": spelt}})  # fmt: skip
        while True:
            say(note)
    elif what == "ask":
        while True:
            answer(1, method="sampling/createMessage", params={"messages": spelt})
    elif what == "error":
        answer(number, error={"code": -32000, "message": "no: " + spelt, "data": spelt})
    elif what == "no_message":
        answer(number, neither=spelt)
    elif what == "child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "agentlab-child"])
        os._exit(0)
    else:
        return False
    return what not in ("junk", "binary")  # whether it stands for an answer


def tool(**fields):
    return {"name": "echo", "inputSchema": {"type": "object"}, **fields}


def parameters(**properties):
    return tool(inputSchema={"type": "object", "properties": properties})


LISTS = {
    "outside": lambda: [parameters(a={"$ref": "file:///etc/passwd"})],
    "no_schema": lambda: [tool(inputSchema={"type": spelt})],
    "schema_text": lambda: [tool(inputSchema=spelt)],
    "deep_schema": lambda: [tool(inputSchema=json.loads('{"not":' * 200 + "{}" + "}" * 200))],
    "bad_output": lambda: [tool(outputSchema={"type": "object", "minProperties": "x"})],
    "twice": lambda: [tool(), tool()],
    "no_name": lambda: [tool(name="")],
    "odd_name": lambda: [tool(name="a\x1b[2Jb")],
    "name": lambda: [tool(name="get_" + secret)],
    "property": lambda: [parameters(**{secret: {}})],
    "enum": lambda: [parameters(a={"enum": [secret]})],
    "const": lambda: [parameters(a={"anyOf": [{"const": spelt}]})],
    "pattern": lambda: [parameters(a={"pattern": secret})],
    "required": lambda: [tool(inputSchema={"type": "object", "required": [secret]})],
    "output": lambda: [
        tool(outputSchema={"type": "object", "properties": {"a": {"enum": [secret]}}})
    ],
    "description": lambda: [tool(description="as " + spelt)],
    "title": lambda: [tool(title=spelt, annotations={"title": spelt, "readOnlyHint": True})],
    "default": lambda: [parameters(a={"default": spelt, "description": spelt, "title": spelt})],
    "examples": lambda: [parameters(a={"examples": [{spelt: spelt}], "$comment": spelt})],
    "many": lambda: [tool(name=f"t{i}") for i in range(20_000)],
}


def results():
    """Return what a call gives, by behaviour; a text is a line of its own making."""
    text = [{"type": "text", "text": "x " + spelt}]
    link = {"type": "resource_link", "uri": "http://h/" + quote(secret), "name": spelt}
    deep = '{"jsonrpc": "2.0", "id": %d, "result": {"content": [], "structuredContent": {"a": %s}}}'
    return {
        "text": {"content": text},
        "structured": {"content": [], "structuredContent": {spelt: [{"a": spelt}]}},
        "blocks": {"content": [*text, link]},
        "failed": {"content": text, "isError": True},
        "nan": {"content": text, "structuredContent": {"a": float("nan")}},
        "digits": deep.replace("%s", "9" * 6000),
        "deep": deep.replace("%s", "[" * 10_000 + "]" * 10_000),
        "deepish": deep.replace("%s", "[" * 500 + "]" * 500),
        "half": deep.replace("%s", '"\\ud800 half"'),
        "no_result": {"content": "none"},
        "ask_back": {"resultType": "input_required", "inputRequests": {}},
        "regex": {"content": [], "structuredContent": {"a": "a" * 60 + "!"}},
    }


def pages(number):
    state["pages"] += 1
    cursor = {"endless": str(state["pages"]), "circle": "same"}.get(behaviour)
    more = {"nextCursor": cursor} if cursor else {}
    return {"tools": [tool(name=f"t{state['pages']}")], **more}


def respond(message):
    number, method = message.get("id"), message.get("method")
    when, _, what = behaviour.partition(":")
    stage = {"initialize": "start", "tools/list": "list", "tools/call": "call"}.get(method)
    if stage is None:
        return
    if stage == "call" and os.environ.get("COUNT_FILE"):
        with open(os.environ["COUNT_FILE"], "a") as file:
            file.write("called\n")
    if when == stage and do(what, number):
        return
    if stage == "start":
        version = message["params"]["protocolVersion"]
        info = {"name": "s" + secret, "version": "1"}
        answer(number, result={"protocolVersion": version, "capabilities": {"tools": {}},
                               "serverInfo": info, "instructions": secret})  # fmt: skip
    elif stage == "list":
        if behaviour in ("endless", "circle"):
            answer(number, result=pages(number))
            return
        schema = {"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}}
        default = [tool(outputSchema=schema) if what == "regex" else tool()]
        answer(number, result={"tools": LISTS.get(behaviour, lambda: default)()})
        if behaviour == "after:die":
            os._exit(0)
    else:
        result = results().get(what, {"content": [{"type": "text", "text": "hi"}]})
        if isinstance(result, str):
            say(result % number)
        else:
            answer(number, result=result)


for line in sys.stdin:
    respond(json.loads(line))
if behaviour == "close:hang":
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
