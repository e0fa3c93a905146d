"""The one door to files: regular files of a bounded size, opened without waiting."""

from __future__ import annotations

import io
import os
import socket
import sys
from pathlib import Path

import pytest

import agentlab as al
from agentlab.base.files import exists, is_file, read_bytes, read_file, shown
from agentlab.errors import AgentLabError, ConfigError
from agentlab.lm.recording import Recording
from agentlab.lm.scripted import read_script
from agentlab.state.config import load_registry
from agentlab.study.definition import read_definition


def readers(folder):
    return [
        (lambda p: al.load_suite(Path(p)), "x.jsonl"), (read_definition, "x.yaml"),
        (load_registry, "x.yaml"), (load_registry, "x.toml"), (read_script, "x.json"),
        (Recording, "x.jsonl"), (lambda p: Recording(p, "record"), "y.jsonl"),
    ]  # fmt: skip


def odd(folder):
    """Names of what is no file that can be read."""
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "ring").symlink_to(folder / "ring")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "socket"))
    listening.close()
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    (folder / "utf16").write_bytes("id: a".encode("utf-16"))
    (folder / "gzip").write_bytes(b"\x1f\x8b\x08\x00rest")
    names = ["pipe", "folder", "dangling", "ring", "socket", "sparse", "utf16", "gzip", "none"]
    devices = ["/dev/zero", "/dev/tty", "/dev/null"]
    return [*(str(folder / n) for n in names), *devices, "a\0b", "x" * 5000, "x/" * 3000, ""]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX")
def test_what_is_no_file_is_one_error_and_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in odd(tmp_path):
        for read, _ in readers(tmp_path)[:6]:
            with pytest.raises(AgentLabError) as caught:
                read(name)
            assert len(str(caught.value)) < 1000


def test_a_larger_file_is_not_read(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(b"x" * 11)
    assert read_bytes(path, ConfigError, 11) == b"x" * 11
    with pytest.raises(ConfigError, match="more than 10 bytes"):
        read_bytes(path, ConfigError, 10)


def test_text_is_utf8_and_a_mark_before_it_is_left_out(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\rc")
    assert read_file(path, ConfigError) == "a\r\nb\rc"
    path.write_bytes(b"a\nb\xff")
    with pytest.raises(ConfigError, match="byte 3, in line 2, is no UTF-8"):
        read_file(path, ConfigError)


def test_standard_input_is_read_where_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"agents:\n- id: a\n")))
    assert list(load_registry("-").agents) == ["a"]
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ConfigError, match="standard input: cannot be read: it is closed"):
        load_registry("-")
    with pytest.raises(ConfigError, match="cannot be read"):  # a script is read again elsewhere
        read_script("-")


def test_names_that_no_file_can_have():
    for name in ("a\0b", "x" * 5000, ""):
        assert not is_file(name)
        assert not exists(name)
    assert len(shown("x" * 5000)) == 300
