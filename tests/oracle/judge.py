"""The oracle's judgement of one command: transparent, exact, nothing else, never Git, never silent."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from .stage import Ended, Stage, ancestors, left, without_notes
from .tree import Tree, changed, git_state, rewritten, snapshot

WHOLE_FOLDERS = ("ignored_folder", "nested_repository", "git_internal", "special_file", "unreadable")
"""Reasons under which one listed folder speaks for everything below it."""
WHOLE_PROJECT = (b".", "git_blind")
"""The gap that says: what Git does not see was not looked at. It speaks for no path that must be put back."""


def judge(
    stage: Stage,
    command: str,
    *,
    may_leave: Collection[bytes] = (),
    unseen: Collection[bytes] = (),
    twin: bool = True,
) -> None:
    """Run a command bare on a twin, wrapped on the stage, undo it, and hold all of it against the promises.

    `may_leave` names paths, or folders, that the undo may leave if the card lists them with a reason. A path
    that is left without being listed fails whatever is allowed, but for those in `unseen`: what the guide says is not
    seen in a project too large to be looked at file by file. `twin=False` is for commands that do not do the
    same twice.
    """
    bare, twin_tree = _play_bare(stage, command) if twin else (None, None)
    before, outside = snapshot(stage.top), snapshot(stage.room / "outside")
    ended = stage.wrapped(command)
    after, git_after = snapshot(stage.top), git_state(*stage.git_folders)
    outside_after = snapshot(stage.room / "outside")
    point = stage.point()
    gaps = left(point) if point else {}
    if bare is not None and twin_tree is not None:
        _transparent(bare, ended, gaps)
        same = changed(twin_tree, after)
        assert not same, f"the wrapped command did something else: {_told(same, twin_tree, after)}"
    assert snapshot(stage.top) == after, "show wrote in the project"
    _listed(before, after, point, unseen)
    undone = stage.ckpt("undo", "--yes")
    final = snapshot(stage.top)
    assert git_state(*stage.git_folders) == git_after, _git_told(git_after, git_state(*stage.git_folders), undone)
    assert snapshot(stage.room / "outside") == outside_after, f"undo wrote outside ({outside=})"
    _nothing_else(before, after, final, undone)
    _exact(before, after, final, gaps, may_leave, unseen, undone)


def _play_bare(stage: Stage, command: str) -> tuple[Ended, Tree]:
    ended = stage.bare(command)
    tree = snapshot(stage.top)
    stage.again()
    return ended, tree


def _transparent(bare: Ended, ended: Ended, gaps: Mapping[bytes, str]) -> None:
    code = 128 - bare.code if bare.code < 0 else bare.code
    assert ended.code == code, f"exit code {ended.code}, bare {bare.code}: {ended}"
    assert ended.out == bare.out, f"stdout {ended.out!r}, bare {bare.out!r}"
    err = without_notes(ended.err) if gaps else ended.err
    assert err == bare.err, f"stderr {err!r}, bare {bare.err!r}"


def _listed(before: Tree, after: Tree, point: Mapping[str, Any] | None, unseen: Collection[bytes]) -> None:
    """Each file, link or special that changed is on the card (folders may be told by what lies in them)."""
    shown = {os.fsencode(c["path"]): c["reason"] for c in point["changes"]} if point else {}
    for path in sorted(changed(before, after)):
        kinds = {tree.entries[path].kind for tree in (before, after) if path in tree.entries}
        if kinds != {"folder"} and not _is_allowed(path, unseen):
            assert _speaks_for(shown, path), f"changed and not listed: {_told({path}, before, after)}; {shown}"
    ghosts = {path for path, reason in shown.items() if reason is None} - changed(before, after)
    assert not ghosts, f"listed and not changed: {ghosts}"


def _speaks_for(shown: Mapping[bytes, str | None] | Mapping[bytes, str], path: bytes) -> bool:
    known = path in shown or WHOLE_PROJECT in shown.items()
    return known or any(shown.get(folder) in WHOLE_FOLDERS for folder in ancestors(path))


def _nothing_else(before: Tree, after: Tree, final: Tree, undone: Ended) -> None:
    """What the command did not change, the undo did not touch: same entry, same inode, same mtime."""
    touched = changed(before, after)
    others = changed(after, final) - touched
    assert not others, f"undo changed what the command did not: {_told(others, after, final)}; {undone}"
    again = rewritten(after, final) - touched
    assert not again, f"undo rewrote what the command did not change: {again}"


def _exact(
    before: Tree,
    after: Tree,
    final: Tree,
    gaps: Mapping[bytes, str],
    may_leave: Collection[bytes],
    unseen: Collection[bytes],
    undone: Ended,
) -> None:
    lost = {path for path in changed(before, final) if path in gaps or not _is_allowed(path, unseen)}
    for path in sorted(lost):
        silent = f"left and not listed: {_told({path}, before, final)}; gaps {dict(gaps)}; {undone}"
        assert _is_told(gaps, path, before, final), silent
    unexpected = {path for path in lost if not _is_allowed(path, may_leave)}
    assert not unexpected, f"not put back: {_told(unexpected, before, final)}; gaps {dict(gaps)}; {undone}"
    doubts = {path: reason for path, reason in gaps.items() if (path, reason) != WHOLE_PROJECT}
    surplus = {path: reason for path, reason in doubts.items() if not _is_allowed(path, may_leave)}
    assert not surplus, f"called a gap: {surplus}; {undone}"
    if lost:
        assert undone.code == 4, f"something was left, yet: {undone}"
    elif changed(before, after) and not gaps and not unseen:
        assert undone.code == 0, undone
    else:
        assert undone.code in (0, 1, 4), undone


def _is_told(gaps: Mapping[bytes, str], path: bytes, before: Tree, final: Tree) -> bool:
    """Is the path listed, or told by a listed folder above, or (a folder) by a listed path inside it?"""
    if _speaks_for(gaps, path):
        return True
    kinds = {tree.entries[path].kind for tree in (before, final) if path in tree.entries}
    return kinds == {"folder"} and any(gap.startswith(path + b"/") for gap in gaps)


def _is_allowed(path: bytes, may_leave: Collection[bytes]) -> bool:
    """Is it a path that may be left, or one below such a folder, or a folder above such a path?"""
    if path in may_leave or any(folder in may_leave for folder in ancestors(path)):
        return True
    return any(allowed.startswith(path + b"/") for allowed in may_leave)


def _told(paths: set[bytes], old: Tree, new: Tree) -> str:
    lines = [f"{path!r}: {old.entries.get(path)} -> {new.entries.get(path)}" for path in sorted(paths)[:12]]
    return f"{len(paths)} paths\n  " + "\n  ".join(lines)


def _git_told(old: Mapping[bytes, object], new: Mapping[bytes, object], undone: Ended) -> str:
    differing = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return f"Git's files changed: {differing[:12]}; {undone}"
