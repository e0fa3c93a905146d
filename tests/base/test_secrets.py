"""Secrets: however a program spells one, nothing is left of it, and no holder shows it."""

from __future__ import annotations

import base64
import copy
import json
import pickle
from urllib.parse import quote, quote_plus, unquote_plus

import pytest
from hypothesis import assume, given, strategies as st

from agentlab.base.secrets import HIDDEN, Secrets
from agentlab.errors import ConfigError

SPELL = [
    str,
    repr,
    json.dumps,
    lambda s: json.dumps(s, ensure_ascii=False),
    lambda s: json.dumps(json.dumps({"key": s})),
    lambda s: json.dumps(s).replace("/", "\\/"),
    quote,
    lambda s: quote(s, safe=""),
    quote_plus,
    lambda s: quote(quote(s, safe=""), safe=""),
    lambda s: quote(json.dumps(s)),
    lambda s: base64.b64encode(s.encode()).decode(),
    lambda s: base64.urlsafe_b64encode(s.encode()).decode().rstrip("="),
]
keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=30).filter(
    lambda s: len(s.strip()) >= 4 and "*" not in s
)


@given(key=keys, spell=st.sampled_from(SPELL), around=st.text("ab *", max_size=5))
def test_a_secret_is_hidden_in_any_spelling(key, spell, around):
    said = spell(key)
    left = Secrets([key]).hide(around + said + around)
    assert said not in left
    assert HIDDEN in left
    assert key not in unquote_plus(left)


@given(key=keys, spell=st.sampled_from(SPELL))
def test_a_document_is_hidden_through_and_through(key, spell):
    said = spell(key)
    assume(said not in json.dumps({"n": [1, 2.5, None, True, "fine"], "a": ["xy"]}))
    document = {said: [{"a": f"x{said}y"}, [said]], "n": [1, 2.5, None, True, "fine"]}
    left = Secrets([key]).hidden(document)
    assert said not in json.dumps(left, ensure_ascii=False)
    assert left["n"][:4] == [1, 2.5, None, True]


def test_what_is_too_short_is_no_secret_and_a_long_number_is_one():
    secrets = Secrets(["abc", "8080", "123456789", ""])
    assert secrets.hide("abc 8080") == f"abc {HIDDEN}"
    assert secrets.hidden([8080, 123456789, 10**5000]) == [8080, HIDDEN, 10**5000]


def test_a_line_of_a_key_file_is_hidden_alone():
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nshort\n"
    assert "MIIEvQ" not in Secrets([key]).hide("line 2 is MIIEvQIBADANBgkqhkiG9w0B")


def test_what_is_nested_without_end_is_an_error():
    deep = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(ValueError, match="too deep"):
        Secrets(["abcd"]).hidden(deep)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_secrets_stay_where_they_are(copied):
    secrets = Secrets(["hunter2-value"])
    assert "hunter2" not in repr(secrets) + repr([getattr(secrets, n) for n in ("_spellings",)])
    with pytest.raises(ConfigError, match="do not cross processes"):
        copied(secrets)
