"""A project and the real programs on it: what they said, and what of the project they touched."""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
import subprocess
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

TOOLS = Path(sysconfig.get_path("scripts"))
CKPT, CKPT_RUN = str(TOOLS / "ckpt"), str(TOOLS / "ckpt-run")
GOLDEN = Path(__file__).parents[1] / "golden"
SECONDS_MAX = 60.0
GIT_IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.com")


class Ended(NamedTuple):
    """How a program ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout as JSON; what is none fails the test with both streams shown."""
        assert self.out.startswith("{"), self
        return json.loads(self.out)


def run(argv: list[str | bytes], cwd: Path, env: Mapping[str, str] | None = None) -> Ended:
    """Run a program without a terminal or stdin; a file that it forgot to close fails the test."""
    variables = {**os.environ, "PYTHONWARNINGS": "always::ResourceWarning", **(env or {})}
    ended = subprocess.run(
        argv,
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=SECONDS_MAX,
        encoding="utf-8",
        errors="surrogateescape",
    )
    assert "ResourceWarning" not in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a folder, `.git` too: kind, mode, mtime, bytes or target."""
    seen: dict[str, tuple[object, ...]] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            info = os.lstat(path)
            content: object = None
            if stat.S_ISREG(info.st_mode):
                content = Path(path).read_bytes()
            elif stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            seen[os.path.relpath(path, folder)] = (info.st_mode, info.st_mtime_ns, content)
    return seen


class Desk:
    """A Git project at `top` with one commit: a.txt, b.txt, d/c.txt."""

    def __init__(self, top: Path) -> None:
        self.top = top
        (top / "d").mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        for name in ("a.txt", "b.txt", "d/c.txt"):
            (top / name).write_text("one\ntwo\nthree\n")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "first")

    def git(self, *words: str) -> str:
        """Run Git, which has to succeed."""
        ended = run(["git", *GIT_IDENTITY, *words], self.top)
        assert ended.code == 0, ended
        return ended.out

    def ckpt(self, *words: str | bytes, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ended:
        """Run a verb of `ckpt`."""
        return run([CKPT, *words], cwd or self.top, env)

    def wrapped(self, script: str, *options: str, cwd: Path | None = None) -> str:
        """Run a shell script under the wrapper; gives the id of its run."""
        ended = run([CKPT_RUN, *options, "--", "sh", "-c", script], cwd or self.top)
        assert ended.code == 0, ended
        return str(self.ckpt("log", "-n", "1", "--json").json["runs"][0]["id"])

    def read(self, name: str) -> str:
        """A file's text."""
        return (self.top / name).read_text()

    def write(self, name: str, text: str) -> None:
        """Save a file, as a person would."""
        (self.top / name).parent.mkdir(exist_ok=True)
        (self.top / name).write_text(text)

    def untouched_by(self, act: Callable[[], Ended]) -> Ended:
        """Do it, and hold the whole project with its `.git` against what it was."""
        before = snapshot(self.top)
        ended = act()
        after = snapshot(self.top)
        assert after == before, {name for name in {*before, *after} if before.get(name) != after.get(name)}
        return ended

    @property
    def store(self) -> Path:
        """The project's folder in the store; the only one."""
        (found,) = (Path(os.environ["CKPT_HOME"]) / "projects").iterdir()
        return found


def one_sentence(ended: Ended, code: int, *words: str) -> None:
    """Hold a refusal against the rule: the code, nothing on stdout, one line on stderr that says these words."""
    assert ended.code == code, ended
    assert ended.out == "", ended
    assert ended.err.count("\n") == 1, ended
    assert ended.err.startswith("ckpt"), ended
    for word in words:
        assert word in ended.err, ended


_CHANGING = (
    (re.compile(r" *\d+ (s|min) ago"), " AGE"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"[\d.]+ KiB on disk"), "ROOM on disk"),
)


def pinned(text: str, desk: Desk) -> str:
    """The text with what differs from run to run named: ids by the order they are met in, ages, places."""
    text = text.replace(str(desk.top), "PROJECT")
    text = re.sub(r"\S*/projects/[0-9a-f]{20}", "STORE", text)
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    names: dict[str, str] = {}
    return re.sub(r"\b[0-9a-f]{10}\b", lambda found: names.setdefault(found[0], f"ID{len(names) + 1:08}"), text)


def hold_golden(name: str, text: str, folder: Path) -> None:
    """Compare with what stands in tests/golden; another text fails the test with a diff for somebody to look at."""
    place = GOLDEN / f"{name}.txt"
    known = place.read_text() if place.exists() else ""
    if text == known:
        return
    (folder / place.name).write_text(text)
    diff = "".join(difflib.unified_diff(known.splitlines(True), text.splitlines(True), f"golden/{place.name}", "now"))
    pytest.fail(f"{diff}\nIf this is what people shall read: cp {folder / place.name} {place}", pytrace=False)
