"""The cancel token: told once, heard wherever the tool's own code runs."""

from __future__ import annotations

import threading
import time
from contextvars import copy_context

import pytest

import agentlab as al
from agentlab.errors import ToolFailure
from agentlab.tools.cancel import CURRENT, CancelToken


def test_a_token_where_nobody_cancels():
    token = al.cancel_token()
    assert not token.cancelled
    assert token.wait(0) is False
    token.check()
    token.cancel()
    assert token.wait(10)
    with pytest.raises(ToolFailure, match="nobody waits"):
        token.check()
    assert not al.cancel_token().cancelled


def test_it_is_found_wherever_the_context_goes_and_wakes_who_waits():
    token, found = CancelToken(), []
    context = copy_context()
    context.run(CURRENT.set, token)

    def work():
        began = time.monotonic()
        found.append((al.cancel_token().wait(10), time.monotonic() - began))

    thread = threading.Thread(target=lambda: context.run(work))
    thread.start()
    token.cancel()
    thread.join(5)
    assert found[0][0] is True
    assert found[0][1] < 5
    assert al.cancel_token() is not token
