"""The kinds of projects: one function a variant, each builds a room once; `Rooms` hands out copies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .project import (
    LINES,
    age,
    append,
    commit_history,
    copy_room,
    git,
    leave_feed,
    leave_strangers,
    leave_work,
    refresh,
    start,
    write,
)


class Variant(NamedTuple):
    """A kind of project: how its room is built, what a fresh copy still needs, where and how commands run."""

    build: Callable[[Path], None]
    settle: Callable[[Path], None] = lambda room: refresh(room / "project")
    folder: str = "."
    umask: int = 0o022


def _plain(room: Path) -> None:
    top = start(room)
    commit_history(top)
    leave_feed(room)
    leave_work(top)


def _tidy(room: Path) -> None:
    top = start(room)
    commit_history(top)
    leave_feed(room)
    leave_strangers(top)


def _unborn(room: Path) -> None:
    top = start(room)
    git(top, "add", "src", "README.md", "run.sh", "link-file")
    append(top, "README.md", "staged, then edited\n")
    leave_strangers(top)


def _worktree(room: Path) -> None:
    _plain(room)
    (room / "project").rename(room / "main")
    git(room / "main", "stash", "-q")
    git(room / "main", "worktree", "add", "-q", "-b", "linked", str(room / "project"))
    leave_work(room / "project")


def _settle_worktree(room: Path) -> None:
    own = room / "main/.git/worktrees/project"
    (own / "gitdir").write_text(f"{room}/project/.git\n")
    (room / "project/.git").write_text(f"gitdir: {own}\n")
    refresh(room / "project")


def _sha256(room: Path) -> None:
    top = start(room, "--object-format=sha256")
    commit_history(top)
    leave_feed(room)
    leave_work(top)


def _autocrlf(room: Path) -> None:
    top = start(room, config={"core.autocrlf": "true", "core.safecrlf": "false"})
    commit_history(top)
    leave_work(top)


def _text_auto(room: Path) -> None:
    top = start(room, attributes="* text=auto\n*.md text eol=crlf\n", config={"core.safecrlf": "false"})
    commit_history(top)
    leave_work(top)


def _filtered(room: Path) -> None:
    top = start(room, attributes="*.md filter=upper\n", config=_filters(room))
    commit_history(top)
    leave_work(top)


def _filters(room: Path) -> dict[str, str]:
    mark = "touch ../marks/filter 2>/dev/null; exec tr"
    return {"filter.upper.clean": f"{mark} a-z A-Z", "filter.upper.smudge": f"{mark} A-Z a-z"}


HOSTILE = {
    "status.showUntrackedFiles": "no",
    "status.short": "true",
    "status.branch": "true",
    "status.showStash": "true",
    "status.relativePaths": "false",
    "status.renames": "copies",
    "status.submoduleSummary": "true",
    "color.ui": "always",
    "color.status": "always",
    "core.quotePath": "true",
    "core.precomposeUnicode": "true",
    "core.safecrlf": "warn",
    "core.commentChar": "|",
    "column.ui": "always",
    "diff.noprefix": "true",
    "diff.renames": "copies",
    "diff.ignoreSubmodules": "all",
    "diff.wsErrorHighlight": "all",
    "commit.gpgSign": "true",
    "alias.status": "!false",
    "advice.statusHints": "true",
    "merge.conflictStyle": "diff3",
    "log.showSignature": "true",
    "submodule.recurse": "true",
    "pager.status": "true",
    "pager.diff": "true",
}
HOSTILE_PROGRAMS = (
    "core.fsmonitor",
    "core.pager",
    "core.editor",
    "core.askPass",
    "diff.external",
    "interactive.diffFilter",
    "gpg.program",
)


def _hostile(room: Path) -> None:
    _plain(room)
    top = room / "project"
    for key, value in HOSTILE.items():
        git(top, "config", key, value)
    programs = room / "programs"
    programs.mkdir()
    hooks = ("post-index-change", "pre-commit", "post-checkout", "fsmonitor-watchman", "reference-transaction")
    for name in (*HOSTILE_PROGRAMS, *hooks):
        program = programs / name
        program.write_text(f'#!/bin/sh\ntouch "${{0%/*}}/../marks/{name}"\nexit 1\n')
        program.chmod(0o755)
    for name in HOSTILE_PROGRAMS:
        git(top, "config", name, f"../programs/{name}")
    git(top, "config", "core.hooksPath", "../programs")


def _settle_hostile(room: Path) -> None:
    top = room / "project"
    quiet = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    git(top, *quiet, "update-index", "-q", "--refresh", codes=(0, 1))


def _nameless(room: Path) -> None:
    _plain(room)
    for key in ("user.name", "user.email"):
        git(room / "project", "config", "--unset", key)
    git(room / "project", "config", "user.useConfigOnly", "true")


def _with(*commands: tuple[str, ...]) -> Callable[[Path], None]:
    """Build the plain project, then run these Git commands in it."""

    def build(room: Path) -> None:
        _plain(room)
        for argv in commands:
            git(room / "project", *argv)

    return build


def _flagged(flag: str) -> Callable[[Path], None]:
    def build(room: Path) -> None:
        _plain(room)
        top = room / "project"
        git(top, "update-index", flag, "README.md", "docs/notes.md", "src/app.py")
        append(top, "src/app.py", "# Git was told not to look\n")

    return build


def _intent(room: Path) -> None:
    _plain(room)
    write(room / "project", {b"intended.txt": "git add -N\n", b"intended-gone.txt": "git add -N, then deleted\n"})
    git(room / "project", "add", "-N", "intended.txt", "intended-gone.txt")
    (room / "project/intended-gone.txt").unlink()


def _nested(room: Path) -> None:
    _plain(room)
    inner = room / "project/nested"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "main")
    write(inner, {b"kept.txt": "committed inside\n", b"deep/file.txt": LINES})
    git(inner, "add", "-A")
    git(inner, "-c", "user.name=N", "-c", "user.email=n@example.org", "commit", "-qm", "inside")
    write(inner, {b"loose.txt": "untracked inside\n"})
    append(inner, "kept.txt", "dirty inside\n")


def _submodule(room: Path) -> None:
    _tidy(room)
    top, source = room / "project", room / "source"
    source.mkdir()
    git(source, "init", "-q", "-b", "main")
    write(source, {b"lib.py": LINES, b"deep/data.txt": "data\n"})
    git(source, "add", "-A")
    git(source, "-c", "user.name=N", "-c", "user.email=n@example.org", "commit", "-qm", "library")
    git(top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../source", "lib")
    git(top, "commit", "-qm", "with a submodule", "--", "lib", ".gitmodules")
    append(top, "lib/lib.py", "dirty inside the submodule\n")
    write(top, {b"lib/loose.txt": "untracked inside the submodule\n"})


def _conflict(room: Path) -> None:
    _tidy(room)
    git(room / "project", "merge", "clash", codes=(1,))


def _small(room: Path) -> None:
    """Build a handful of files and two branches: what the state machine can go through many times."""
    top = room / "project"
    (room / "outside").mkdir(parents=True)
    (room / "marks").mkdir()
    git(room, "init", "-q", "-b", "main", "project")
    for key, value in {"user.name": "Somebody", "user.email": "somebody@example.org", "gc.auto": "0"}.items():
        git(top, "config", key, value)
    write(top, {b"a.txt": LINES, b"b.txt": LINES, b"folder/c.txt": LINES, b".gitignore": "*.db\n"})
    git(top, "add", "-A")
    git(top, "commit", "-qm", "first")
    git(top, "branch", "side")
    append(top, "a.txt", "more on main\n")
    git(top, "commit", "-qam", "second")
    append(top, "b.txt", "not committed\n")
    write(top, {b"untracked.txt": LINES, b"own.db": LINES})


def _settle_fresh(room: Path) -> None:
    """Stage, commit and edit within the same moment as the command: every index entry is racy."""
    top = room / "project"
    write(top, {b"README.md": LINES.replace("line 5", "LINE 5"), b"src/util.py": "def answer():\n    return 41\n"})
    git(top, "commit", "-qm", "just now", "--", "README.md", "src/util.py")
    write(top, {b"src/util.py": "def answer():\n    return 40\n", b"untracked.txt": "nobody has a cOpy\n"})


VARIANTS = {
    "plain": Variant(_plain),
    "tidy": Variant(_tidy),
    "unborn": Variant(_unborn),
    "worktree": Variant(_worktree, _settle_worktree),
    "sha256": Variant(_sha256),
    "autocrlf": Variant(_autocrlf),
    "text-auto": Variant(_text_auto),
    "filtered": Variant(_filtered),
    "hostile": Variant(_hostile, _settle_hostile),
    "nameless": Variant(_nameless),
    "sparse": Variant(_with(("sparse-checkout", "set", "--no-cone", "/*", "!/docs/", "!/logs/"))),
    "skip-worktree": Variant(_flagged("--skip-worktree")),
    "assume-unchanged": Variant(_flagged("--assume-unchanged")),
    "file-mode-off": Variant(_with(("config", "core.fileMode", "false"))),
    "split-index": Variant(_with(("update-index", "--split-index"))),
    "untracked-cache": Variant(_with(("update-index", "--force-untracked-cache"))),
    "index-v4": Variant(_with(("update-index", "--index-version", "4"))),
    "intent": Variant(_intent),
    "nested": Variant(_nested),
    "submodule": Variant(_submodule),
    "conflict": Variant(_conflict),
    "fresh": Variant(_plain, _settle_fresh),
    "subfolder": Variant(_plain, folder="src/deep"),
    "umask-077": Variant(_plain, umask=0o077),
    "small": Variant(_small),
}


class Rooms:
    """Templates of rooms, each built at most once a session, and copies of them."""

    def __init__(self, base: Path, variables: dict[str, str]) -> None:
        """Keep templates below `base`; build them with the environment `variables`."""
        self._base = base
        self._variables = variables
        self._built: set[str] = set()

    def copy(self, name: str, room: Path) -> Variant:
        """Make `room` (which must not exist) a copy of the variant `name`, ready for a command."""
        variant = VARIANTS[name]
        template = self._base / name
        if name not in self._built:
            with _environment(self._variables):
                variant.build(template)
                age(template / "project")
            self._built.add(name)
        room.mkdir(parents=True)
        copy_room(template, room)
        variant.settle(room)
        for mark in (room / "marks").iterdir():
            mark.unlink()
        return variant


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    outside, mask = dict(os.environ), os.umask(0o022)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.umask(mask)
        os.environ.clear()
        os.environ.update(outside)
