"""What may have changed: the paths to look at after the run. Decides nothing about them.

With a survey from before, a second one tells every path whose fingerprint moved, and no Git is asked. Without one,
Git is asked again, of the index as it was before.
"""

from __future__ import annotations

import os

from ckpt_run.capture import index as git_index
from ckpt_run.capture import worktree
from ckpt_run.capture.baseline import is_below, is_born_since
from ckpt_run.capture.copies import SECOND_NS, is_recent
from ckpt_run.capture.errors import GitError
from ckpt_run.capture.git import parse_status
from ckpt_run.capture.index import SKIP_WORKTREE, UINT32
from ckpt_run.capture.model import Kind
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.worktree import kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckpt_run.capture.baseline import Baseline, Part
    from ckpt_run.capture.model import Fingerprint, Path
    from ckpt_run.capture.spool import Spool
    from ckpt_run.capture.worktree import Survey, Tree

POINT_FILES_MAX = 4096


class Touched:
    """What to look at: `paths` (files, links, folders) and `gaps`, folders that are left whole with the reason.

    `doubtful` are paths of which only the metadata moved, in a project without a survey; `is_blind` says that Git
    could not be asked after the run, so that only copied files were compared.
    """

    __slots__ = ("doubtful", "gaps", "is_blind", "paths")

    def __init__(self) -> None:
        """Start empty."""
        self.paths: set[Path] = set()
        self.doubtful: set[Path] = set()
        self.gaps: dict[Path, tuple[str, dict[str, int | str]]] = {}
        self.is_blind = False

    def __bool__(self) -> bool:
        """Say whether there is anything to look at."""
        return bool(self.paths or self.doubtful or self.gaps or self.is_blind)


class Looked:
    """The project's files, open for reading, and what may have changed in them; a context manager."""

    __slots__ = ("touched", "tree")

    def __init__(self, tree: Tree, found: Touched) -> None:
        """Hold the two."""
        self.tree = tree
        self.touched = found

    def __enter__(self) -> Looked:
        """Keep the tree open for the scope."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the tree."""
        self.tree.close()


def look(baseline: Baseline, spool: Spool) -> Looked:
    """Look at the project after the run. Where the command took the top level too, an empty folder stands for it."""
    try:
        tree = worktree.Reader(baseline.project.top)
    except FileNotFoundError:
        nothing = spool.folder + b"/nothing"
        os.makedirs(nothing, 0o700, exist_ok=True)
        tree = worktree.Reader(nothing)
    try:
        return Looked(tree, touched(baseline, tree))
    except BaseException:
        tree.close()
        raise


def touched(baseline: Baseline, tree: Tree) -> Touched:
    """Find the paths that the run may have changed."""
    if baseline.survey is not None:
        return _touched_by_survey(baseline, baseline.survey, tree)
    return _touched_by_git(baseline, tree)


def _touched_by_survey(baseline: Baseline, before: Survey, tree: Tree) -> Touched:
    found = Touched()
    after = worktree.survey(tree, files_max=1 << 62, left_out=baseline.ignored_folders, known=before.folders)
    _enter_fresh(after, tree, found)
    found.paths.update(_differing(before.files, after.files))
    found.paths.update(_differing(before.folders, after.folders))
    # A write within one tick of the kernel's clock leaves the fingerprint as it was: compare the bytes of those.
    since = baseline.started_ns
    found.paths.update(
        path for path, seen in before.files.items() if is_recent(seen, since) and path in baseline.copied
    )
    for path in before.nested - after.nested:
        found.gaps[path + b"/.git"] = (Reason.GIT_INTERNAL, {})
    for path in after.nested - before.nested:
        if path in before.folders:
            found.gaps[path + b"/.git"] = (Reason.GIT_INTERNAL, {})
    _look_aside(baseline, tree, found)
    # What stands below a folder that could not be listed before may have been there all along.
    for path in before.unread - after.unread:
        found.gaps.update(
            (inner, (Reason.MAYBE_THERE_BEFORE, {}))
            for inner in found.paths
            if inner.startswith(path + b"/") and inner not in before.files and inner not in before.folders
        )
    for path in after.unread - before.unread:
        found.paths = {inner for inner in found.paths if not inner.startswith(path + b"/")}
        found.gaps[path] = (Reason.UNREADABLE, {"cause": "the folder can no longer be listed"})
    found.paths -= found.gaps.keys()
    return found


def _look_aside(baseline: Baseline, tree: Tree, found: Touched) -> None:
    if baseline.has_folders_aside:
        from ckpt_run.capture import aside

        found.gaps.update(aside.gaps(baseline, tree))


def _differing(before: Mapping[Path, Fingerprint], after: Mapping[Path, Fingerprint]) -> set[Path]:
    return {path for path, _ in before.items() ^ after.items()}


def _enter_fresh(after: Survey, tree: Tree, found: Touched) -> None:
    """Look into the folders that were not there before, as far as a point can hold what is in them."""
    room = POINT_FILES_MAX
    for folder in sorted(after.fresh):
        try:
            inside = worktree.survey(tree, files_max=room, left_out=(), start=folder)
        except worktree.SurveyTooLarge:
            found.gaps[folder] = (Reason.TOO_MANY, {"limit_files": POINT_FILES_MAX})
            continue
        if inside.nested:
            found.gaps[folder] = (Reason.NESTED_REPOSITORY, {})
            continue
        room -= len(inside.files)
        after.files.update(inside.files)
        after.folders.update(inside.folders)
        after.unread |= inside.unread


def _touched_by_git(baseline: Baseline, tree: Tree) -> Touched:
    found = Touched()
    for part in baseline.parts:
        try:
            _ask_again(part, baseline, tree, found)
        except GitError:
            found.is_blind = True
    _look_aside(baseline, tree, found)
    for path, copy in baseline.copied.items():
        seen = _fingerprint(tree, path)
        if seen != copy.fingerprint or (seen is not None and is_recent(seen, copy.read_at_ns)):
            found.paths.add(path)
    for path, why in baseline.uncopied.items():
        if _fingerprint(tree, path) != why.fingerprint:
            found.paths.add(path)
    _add_flagged(baseline, tree, found)
    _enter_former_files(baseline, tree, found)
    found.paths -= found.gaps.keys()
    found.doubtful -= found.paths | baseline.copied.keys() | baseline.uncopied.keys()
    return found


def _add_flagged(baseline: Baseline, tree: Tree, found: Touched) -> None:
    """Of files that Git was told not to look at, and that nobody noted, the index tells when they last were as it."""
    for path in baseline.flagged - baseline.copied.keys() - baseline.uncopied.keys():
        part = baseline.part_of(path)
        tracked = part.index.tracked[path[len(part.prefix) :]]
        seen = _fingerprint(tree, path)
        if seen is None or seen[4] // SECOND_NS & UINT32 != tracked.stat[2] or seen[3] & UINT32 != tracked.size_bytes:
            found.paths.add(path)


def _enter_former_files(baseline: Baseline, tree: Tree, found: Touched) -> None:
    """Look into folders that stand where a file stood: under an ignore rule Git names nothing in them (2.39)."""
    for path in sorted(found.paths):
        seen = _fingerprint(tree, path)
        if seen is None or kind_of(seen[2]) != Kind.DIRECTORY or not _was_file(baseline, path):
            continue
        try:
            inside = worktree.survey(tree, files_max=POINT_FILES_MAX, left_out=(), start=path)
        except worktree.SurveyTooLarge:
            found.gaps[path] = (Reason.TOO_MANY, {"limit_files": POINT_FILES_MAX})
            continue
        found.gaps.update((inner, (Reason.NESTED_REPOSITORY, {})) for inner in inside.nested)
        found.paths.update(inside.files)
        found.paths.update(inside.folders)


def _was_file(baseline: Baseline, path: Path) -> bool:
    noted = baseline.copied.get(path) or baseline.uncopied.get(path)
    if noted is not None:
        return noted.fingerprint is not None and kind_of(noted.fingerprint[2]) != Kind.DIRECTORY
    part = baseline.part_of(path)
    return path[len(part.prefix) :] in part.index.tracked


def _fingerprint(tree: Tree, path: Path) -> Fingerprint | None:
    try:
        return tree.fingerprint(path)
    except OSError:
        return None


def _ask_again(part: Part, baseline: Baseline, tree: Tree, found: Touched) -> None:
    """Ask Git what differs from the index as it was; a link to that index tells whether Git refreshed it.

    git-status(1): with optional locks Git writes what it refreshed to a new file and renames it over the name it was
    given, so the file of before keeps its bytes.
    """
    again = part.private.folder + b"-index-again"
    has_index = os.path.exists(part.private.index)
    if has_index:
        _unlink(again)  # an earlier try to close this run may have left one
        os.link(part.private.index, again)
    asking = part.private.status(index=again)
    status = parse_status(asking.answer())
    found.is_blind |= asking.complained  # it goes on past what it cannot read
    prefix = part.prefix
    for path, letters in status.changed.items():
        if letters[1:2] != b".":
            found.paths.add(prefix + path)
    new = {prefix + path for path in status.untracked | status.ignored_files}
    new -= baseline.untracked | baseline.ignored_files
    if new and has_index:
        new -= {prefix + path for path in part.index.tracked}
    for path in new:
        _note_new(path, baseline, found)
    if part.repository.is_sparse:
        found.paths.update(prefix + path for path in _filled_in(part))
    for path in status.ignored_folders | status.nested:
        full = prefix + path
        if full not in baseline.ignored_folders and not _was_known(full, baseline):
            _note_new_folder(full, baseline, tree, found)
    if has_index and os.stat(again).st_ino != os.stat(part.private.index).st_ino:
        found.doubtful.update(prefix + path for path in _refreshed(part, again) if prefix + path not in found.paths)


def _unlink(path: bytes) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _filled_in(part: Part) -> set[Path]:
    """Paths that a sparse checkout left out and that are there now; a status names none that is as its blob."""
    top = part.repository.top + b"/"
    left_out = (path for path, tracked in part.index.tracked.items() if tracked.flag == SKIP_WORKTREE)
    return {path for path in left_out if os.path.lexists(top + path)}


def _refreshed(part: Part, again: bytes) -> set[Path]:
    with open(again, "rb") as file:
        data = file.read()
    oid_bytes = 32 if part.repository.settings.get(b"extensions.objectformat") == b"sha256" else 20
    after = git_index.parse(data, oid_bytes=oid_bytes).tracked
    return {
        path
        for path, tracked in part.index.tracked.items()
        if path in after and after[path].stat != tracked.stat and tracked.size_bytes
    }


def _note_new(path: Path, baseline: Baseline, found: Touched) -> None:
    """A path that Git did not name before: created, or hidden until now by a rule that the command changed."""
    if is_below(path, baseline.ignored_folders):
        found.gaps[path] = (Reason.MAYBE_THERE_BEFORE, {})
        return
    found.paths.add(path)


def _note_new_folder(path: Path, baseline: Baseline, tree: Tree, found: Touched) -> None:
    if os.path.lexists(baseline.project.top + b"/" + path + b"/.git"):
        found.gaps[path] = (Reason.NESTED_REPOSITORY, {})
        return
    if not is_born_since(baseline, path):
        found.gaps[path] = (Reason.IGNORED_FOLDER, {})
        return
    try:
        inside = worktree.survey(tree, files_max=POINT_FILES_MAX, left_out=(), start=path)
    except worktree.SurveyTooLarge:
        found.gaps[path] = (Reason.TOO_MANY, {"limit_files": POINT_FILES_MAX})
        return
    if inside.nested:
        found.gaps[path] = (Reason.NESTED_REPOSITORY, {})
        return
    found.paths.add(path)
    found.paths.update(inside.files)
    found.paths.update(inside.folders)


def _was_known(folder: Path, baseline: Baseline) -> bool:
    """Say whether a nested repository or an ignored folder was one of those that were looked at before."""
    return folder in baseline.unlooked or any(other.prefix == folder + b"/" for other in baseline.parts)
