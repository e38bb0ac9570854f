"""Which files must be copied before the command, for nobody else holds their bytes; the most precious first."""

from __future__ import annotations

import os

from ckpt_run.capture.copies import Limits, recent_among
from ckpt_run.capture.errors import GitError
from ckpt_run.capture.index import NotAnIndex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckpt_run.capture.baseline import Baseline
    from ckpt_run.capture.copies import Copier
    from ckpt_run.capture.model import Path

MADE_AGAIN_SUFFIXES = (b".pyc", b".pyo", b".swp", b"~", b".DS_Store")
"""Ignored files that programs make and remake unasked; in an ignored folder they are not worth a word."""
LEFT_OUT_SUFFIXES = (*MADE_AGAIN_SUFFIXES, b".log", b".o", b".obj", b".class", b".tmp")
"""Ignored files that hold nothing precious: they are not copied."""
_LEFT_OUT_FILES_MAX = 1000
_AT_RISK_FILES_MAX = 4096
_RISKY_WORDS = frozenset((b"gc", b"prune", b"expire", b"repack", b"filter-branch", b"filter-repo", b".git"))
"""Words of a command that may take objects from Git's database: then clean files are copied too."""
_REMOVING_WORDS = frozenset((b"rm", b"mv", b"find", b"rsync", b"shred", b"rimraf", b"rmtree", b"trash"))
"""As those, where the project itself is named beside one."""


def copy(baseline: Baseline, copier: Copier, *, protect_ignored: bool) -> None:
    """Copy what Git does not hold, the most precious first."""
    fingerprints = baseline.survey.files if baseline.survey is not None else None
    if fingerprints is not None:
        fingerprints = {**fingerprints, **(baseline.survey.folders if baseline.survey else {})}
    copier.copy(sorted(baseline.changed), fingerprints)
    copier.copy(sorted(baseline.untracked), fingerprints)
    if baseline.survey is not None:
        recent = recent_among(baseline.survey.files, baseline.started_ns)
        copier.copy(_not_ignored(recent, baseline), fingerprints)
    if protect_ignored:
        precious = [path for path in baseline.ignored_files if not path.endswith(LEFT_OUT_SUFFIXES)]
        copier.copy(sorted(precious), fingerprints)
    known = copier.copied.keys() | copier.uncopied.keys()
    copier.note_left_out(sorted(baseline.ignored_files - known)[:_LEFT_OUT_FILES_MAX], fingerprints)


def may_lose_objects(argv: Iterable[bytes], top: Path) -> bool:
    """Say whether a word of the command, or of a script given as one word, may take objects from Git.

    `top` is the project's top level, absolute: a command that removes or moves what is called so takes `.git` too.
    """
    name = os.path.basename(top)
    removes = names_top = False
    for word in argv:
        for token in word.split():
            named = token.strip(b"'\"();&|")
            bare = named.rstrip(b"/")
            last = bare.rpartition(b"/")[2]
            if last in _RISKY_WORDS or b".git/objects" in bare:
                return True
            removes |= last in _REMOVING_WORDS
            names_top |= last == name or (named[:1] == b"/" and top.startswith(bare + b"/"))
    return removes and names_top


def copy_clean(baseline: Baseline, limits: Limits, copier: Copier) -> None:
    """Copy the clean files as well: the command may take their blobs from Git before anybody can read them."""
    for part in baseline.parts:
        try:
            paths = [part.prefix + path for path in part.index.tracked]
        except (NotAnIndex, GitError):
            continue
        generous = Limits(
            copy_bytes_max=limits.copy_bytes_max,
            files_per_run_max=_AT_RISK_FILES_MAX,
            project_bytes_max=limits.project_bytes_max,
        )
        copier.copy_if_room(sorted(paths), generous)


def _not_ignored(paths: Iterable[Path], baseline: Baseline) -> list[Path]:
    return [path for path in paths if path not in baseline.ignored_files]


def copy_again(copier: Copier, gone: set[bytes], baseline: Baseline) -> None:
    """Copy anew what lay in packs that another run took away between our look and our link."""
    lost = [path for path, copy in copier.copied.items() if copy.pack in gone]
    for path in lost:
        del copier.copied[path]
    copier.forget(gone)
    copier.copy(lost, baseline.survey.files if baseline.survey is not None else None)
