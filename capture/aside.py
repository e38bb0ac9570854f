"""Folders that are not captured: ignored ones, and repositories that are broken or too many. None is silent.

Nothing in them is copied. A small one is surveyed, so that any change in it is told; of a large one is noted only
which folder it is and when its list of names last changed: enough to tell that it was removed, replaced or emptied.
"""

from __future__ import annotations

import os
import stat

from ckpt_run.capture import worktree
from ckpt_run.capture.precious import MADE_AGAIN_SUFFIXES
from ckpt_run.capture.project import born_ns
from ckpt_run.capture.reasons import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ckpt_run.capture.baseline import Baseline
    from ckpt_run.capture.copies import Memory
    from ckpt_run.capture.model import Path
    from ckpt_run.capture.worktree import Survey, Tree

_FILES_MAX = 1000


def note(baseline: Baseline, tree: Tree, memory: Memory) -> None:
    """Note how those folders stand. In a project too large for a survey, ignored ones are not surveyed either."""
    small = baseline.unlooked
    if baseline.survey is not None:
        small = baseline.ignored_folders - memory.large_folders
    for folder in sorted(small):
        try:
            baseline.ignored_surveys[folder] = worktree.survey(tree, files_max=_FILES_MAX, left_out=(), start=folder)
        except worktree.SurveyTooLarge:
            memory.large_folders.add(folder)
    for folder in _aside(baseline) - baseline.ignored_surveys.keys():
        info = _status(baseline, folder)
        if info is not None:
            baseline.unentered[folder] = (info.st_ino, info.st_mtime_ns)


def gaps(baseline: Baseline, tree: Tree) -> dict[Path, tuple[str, dict[str, int | str]]]:
    """Name each folder in which something changed, other than what a program makes again anyhow, with the reason."""
    found: dict[Path, tuple[str, dict[str, int | str]]] = {}
    for folder in _aside(baseline):
        if _has_changed(baseline, folder, tree):
            is_ignored = folder in baseline.ignored_folders
            found[folder] = (Reason.IGNORED_FOLDER if is_ignored else Reason.NESTED_REPOSITORY, {})
    return found


def _aside(baseline: Baseline) -> set[Path]:
    """The folders that no survey of the project enters."""
    if baseline.survey is not None:
        return baseline.ignored_folders
    return baseline.ignored_folders | baseline.unlooked


def _status(baseline: Baseline, folder: Path) -> os.stat_result | None:
    try:
        info = os.lstat(baseline.project.top + b"/" + folder)
    except OSError:
        return None
    return info if stat.S_ISDIR(info.st_mode) else None


def _has_changed(baseline: Baseline, folder: Path, tree: Tree) -> bool:
    info = _status(baseline, folder)
    if info is None:
        return True
    was = baseline.ignored_surveys.get(folder)
    if was is not None:
        return _differs(was, worktree.survey(tree, files_max=1 << 62, left_out=(), start=folder))
    noted = baseline.unentered.get(folder, (info.st_ino, info.st_mtime_ns))
    if noted == (info.st_ino, info.st_mtime_ns):
        return False
    place = baseline.project.top + b"/" + folder
    try:
        return noted[0] != info.st_ino or born_ns(place) >= baseline.started_ns or not os.listdir(place)
    except OSError:
        return True  # it can no longer be listed


def _differs(was: Survey, now: Survey) -> bool:
    return any(not path.endswith(MADE_AGAIN_SUFFIXES) for path, _ in was.files.items() ^ now.files.items())
