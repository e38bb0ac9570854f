"""The oracle can fail: each promise broken by a small false tool is noticed, and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from .judge import judge
from .stage import Stage
from .variants import Rooms

COMMAND = "echo changed > README.md"
RECORD = "cp -p README.md ../feed/kept"
RUN = 'shift; "$@"'
RESTORE = "cp ../feed/kept README.md"


class Tool(NamedTuple):
    """What a false tool does when it records, shows and undoes, and what the oracle says to it."""

    complaint: str
    show: str = ""
    undo: str = RESTORE
    record: str = f"{RECORD}; {RUN}"


def _told(*paths: str, reason: str | None = None) -> str:
    undo = "leave" if reason else "restore"
    changes = [{"path": path, "undo": undo, "reason": reason} for path in paths]
    return f"echo '{json.dumps({'changes': changes})}'"


README = _told("README.md")
FALSE_TOOLS = {
    "records nothing": Tool("changed and not listed", "exit 1"),
    "lists another file": Tool("changed and not listed", _told("src/app.py")),
    "lists what did not change": Tool("listed and not changed", _told("README.md", "run.sh")),
    "undoes nothing": Tool("left and not listed", undo="true"),
    "undoes nothing and says so": Tool("not put back", _told("README.md", reason="too_large"), "exit 4"),
    "says it left something": Tool("code=4", undo=f"{RESTORE}; exit 4"),
    "loses the bits": Tool("left and not listed", undo=f"{RESTORE}; chmod 600 README.md"),
    "removes another file": Tool("undo changed what the command did not", undo=f"{RESTORE}; rm untracked.txt"),
    "touches another file": Tool("undo rewrote what the command did not", undo=f"{RESTORE}; touch untracked.txt"),
    "leaves something": Tool("undo changed what the command did not", undo=f"{RESTORE}; mkdir stray"),
    "locks Git": Tool("Git's files changed", undo=f"{RESTORE}; touch .git/x; rm .git/x"),
    "writes outside": Tool("undo wrote outside", undo=f"{RESTORE}; echo > ../outside/precious.txt"),
    "writes while it shows": Tool("show wrote in the project", f"touch run.sh; {README}"),
    "speaks": Tool("stdout", record=f"{RECORD}; echo hello; {RUN}"),
    "speaks on stderr": Tool("stderr", record=f"{RECORD}; echo hello >&2; {RUN}"),
    "ends otherwise": Tool("exit code 9", record=f"{RECORD}; {RUN}; exit 9"),
    "does more": Tool("did something else", record=f"{RECORD}; rm run.sh; {RUN}"),
}


@pytest.mark.parametrize("name", FALSE_TOOLS)
def test_a_false_tool_is_caught(rooms: Rooms, tmp_path: Path, name: str) -> None:
    tool = FALSE_TOOLS[name]
    stage = Stage(rooms, tmp_path, "plain", _tools(tmp_path / "tools", tool))
    with pytest.raises(AssertionError, match=tool.complaint):
        judge(stage, COMMAND)


def test_an_honest_tool_passes(rooms: Rooms, tmp_path: Path) -> None:
    judge(Stage(rooms, tmp_path, "plain", _tools(tmp_path / "tools", Tool(""))), COMMAND)


def _tools(folder: Path, tool: Tool) -> Path:
    folder.mkdir()
    verbs = f"case $1 in\nshow) {tool.show or README};;\nundo) {tool.undo};;\nesac"
    for name, text in (("ckpt-run", tool.record), ("ckpt", verbs)):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder
