"""A model of undo that is a dictionary of snapshots: what the tree must be after any train of steps.

`fold` is the promise in ten lines: newest first, each path that still is what a run left becomes what it was
before that run. Where somebody wrote since, the model is not certain of the bytes, only of the manners: what the
run did not change stays, what the user wrote stays, and a refusal changes nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from .tree import Entry, Tree, changed

USER_WORD = re.compile(rb"user-\d+")
Entries = Mapping[bytes, Entry]
Words = dict[bytes, set[bytes]]


class Done(NamedTuple):
    """One run as the model remembers it: id, trees around it, and the user's words that stood when it ended."""

    id: str
    before: Tree
    after: Tree
    words: Words

    @property
    def paths(self) -> set[bytes]:
        """The paths that the run changed."""
        return changed(self.before, self.after)


def fold(now: Entries, newest_first: Iterable[Done]) -> tuple[dict[bytes, Entry], bool]:
    """Return the entries after undoing these runs, and whether the model is certain of them."""
    entries, certain = dict(now), True
    for run in newest_first:
        for path in run.paths:
            before, after = run.before.entries.get(path), run.after.entries.get(path)
            if entries.get(path) == after:
                if before is None:
                    del entries[path]
                else:
                    entries[path] = before
            elif entries.get(path) != before:
                certain = False
    return entries, certain and _could_stand(entries)


def _could_stand(entries: Entries) -> bool:
    """Has every path a folder to stand in?"""
    parents = {os.path.dirname(path) for path in entries} - {b""}
    return all(parent in entries and entries[parent].kind == "folder" for parent in parents)


def user_words(top: Path) -> Words:
    """Return the marks of the user's edits that stand in each regular file, folders named `.git` left out."""
    found: Words = {}
    for folder, folders, names in os.walk(os.fsencode(top)):
        folders[:] = [name for name in folders if name != b".git"]
        for name in names:
            path = os.path.join(folder, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                found[os.path.relpath(path, os.fsencode(top))] = set(
                    USER_WORD.findall(Path(os.fsdecode(path)).read_bytes())
                )
    return found


def lost_words(now: Words, final: Words, runs: Iterable[Done]) -> Words:
    """Return the user's words, written after the runs ended, that stood before an undo and are gone."""
    known: Words = {}
    for run in runs:
        for path, words in run.words.items():
            known.setdefault(path, set()).update(words)
    gone = {path: words - known.get(path, set()) - final.get(path, set()) for path, words in now.items()}
    return {path: words for path, words in gone.items() if words}
