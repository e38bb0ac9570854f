"""From what may have changed to what a run's record holds: its changes and the bytes that Undo needs."""

from __future__ import annotations

import stat

from ckpt_run.capture import aftermath, before, changes, worktree
from ckpt_run.capture.baseline import is_born_since
from ckpt_run.capture.changes import After
from ckpt_run.capture.model import Change, Entry, Kind, Run
from ckpt_run.capture.moved import moved
from ckpt_run.capture.project import born_ns
from ckpt_run.capture.reasons import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import stat_result

    from ckpt_run.capture.aftermath import Looked
    from ckpt_run.capture.baseline import Baseline
    from ckpt_run.capture.before import Before
    from ckpt_run.capture.copies import Limits
    from ckpt_run.capture.model import Path
    from ckpt_run.capture.project import Project
    from ckpt_run.capture.spool import Spool
    from ckpt_run.capture.tracing import Evidence
    from ckpt_run.capture.worktree import Tree

MERGE_BYTES_MAX = 1 << 20
"""A larger text is not merged, and its bytes after the run are not kept."""
_DIGEST_BYTES_MAX = 1 << 30  # a file over this is not read for its digest: a gap
_AFTER_SHARE = 4  # the part of the project's budget that bytes from after the run may take


class Recorded:
    """What the record of a run holds: its changes, the bytes by digest, what moved in Git."""

    __slots__ = ("changes", "contents", "git_moved")

    def __init__(self, found: list[Change], contents: dict[bytes, bytes], git_moved: list[str]) -> None:
        """Hold the three."""
        self.changes = found
        self.contents = contents
        self.git_moved = git_moved


def recorded(
    baseline: Baseline, looked: Looked, spool: Spool, limits: Limits, evidence: Evidence | None = None
) -> Recorded:
    """Find out what the run changed and gather the bytes that Undo and a merge need. Raises OSError.

    `evidence` is what a trace of the run told, joined to what was looked at.
    """
    tree, touched = looked.tree, looked.touched
    paths = touched.paths | _missing_parents(touched.paths, baseline)
    befores = evidence.befores(paths) if evidence else {}
    befores.update(before.before_all(baseline, paths - befores.keys(), spool))
    afters = {path: _after(tree, path) for path in befores}
    if evidence:
        evidence.complete_bits(befores, afters, tree)
    doubts = _doubts(touched.doubtful, tree)
    found = changes.between(befores, afters)
    gaps = changes.gaps(touched.gaps)
    if evidence:
        found, doubts = evidence.attributed(found, tree), evidence.attributed(doubts, tree)
        gaps = evidence.attributed_gaps(gaps, tree)
    stayed = evidence.stayed(befores, tree) if evidence else set()
    _leave_only_copies([change for change in found if change.reason is None], stayed, baseline, tree)
    found += doubts + gaps
    if touched.is_blind:
        found += changes.gaps({b".": (Reason.GIT_BLIND, {})})
    contents = _contents(found, befores, afters, limits)
    part = baseline.parts[0]
    return Recorded(found, contents, moved(part.repository, part.references))


def _missing_parents(paths: Iterable[Path], baseline: Baseline) -> set[Path]:
    """The folders above new paths that the run may have made, in a project without a survey."""
    if baseline.survey is not None:
        return set()
    found: set[Path] = set()
    for path in paths:
        folder = path.rpartition(b"/")[0]
        while folder and folder not in found:
            if not is_born_since(baseline, folder):
                break
            found.add(folder)
            folder = folder.rpartition(b"/")[0]
    return found


def _doubts(paths: Iterable[Path], tree: Tree) -> list[Change]:
    """Files with the same bytes but new metadata, where permission bits that Git does not keep may have changed."""
    usual = {before.git_mode(executable=False), before.git_mode(executable=True)}
    found = []
    for path in sorted(paths):
        status = tree.status(path)
        if status is None or not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) in usual:
            continue
        was = Entry(Kind.FILE, size=status.st_size)
        now = Entry(Kind.FILE, mode=stat.S_IMODE(status.st_mode), size=status.st_size)
        found.append(Change(path, was, now, reason=Reason.PERMISSIONS_UNKNOWN))
    return found


def _leave_only_copies(found: Sequence[Change], stayed: set[Path], baseline: Baseline, tree: Tree) -> None:
    """Leave what is older than the run and was moved to where it stands, from a place that nobody copied.

    Undo would take its only copy away. Where its bytes are those of a file that Undo puts back, nothing is lost.
    `stayed` are paths at which the same file stands as before.
    """
    arrived = [change for change in found if change.path not in stayed and _has_arrived(change, baseline, tree)]
    is_settled = False
    while not is_settled:
        put_back = {change.before.content for change in found if change.reason is None}
        is_settled = True
        for change in arrived:
            if change.reason is None and change.after.content not in put_back:
                change.reason = Reason.MOVED_IN
                is_settled = False  # what it replaced is not put back either


def _has_arrived(change: Change, baseline: Baseline, tree: Tree) -> bool:
    """Say whether what stands at the path was there before the run, under another name."""
    if change.after.kind == Kind.DIRECTORY and change.before.kind == Kind.ABSENT:
        return _is_folder_from_elsewhere(change.path, baseline, tree)
    if change.after.kind not in (Kind.FILE, Kind.LINK) or change.name == "mode":
        return False
    try:
        status = tree.status(change.path)
        if status is None or (change.before.kind != Kind.ABSENT and _is_same_file(change.path, status, baseline)):
            return False
        if status.st_nlink > 1 and _has_name_that_stays(status, baseline, tree):
            return False
        born = born_ns(tree.top + b"/" + change.path)
    except OSError:
        return False
    if not born:  # no birth in this file system: then its age is all there is to tell by
        return status.st_mtime_ns < baseline.started_ns
    # The kernel's stamps lag by up to a tick, but between our first look and the command lies a whole git status.
    return born < baseline.started_ns


def _is_folder_from_elsewhere(path: Path, baseline: Baseline, tree: Tree) -> bool:
    """Say whether a folder is older than the run and was none of the project's: Undo must not remove it."""
    survey = baseline.survey
    status = tree.status(path)
    if survey is None or status is None:
        return False  # without a survey only a folder that was born since is called made by the run
    if any(seen[:2] == (status.st_dev, status.st_ino) for seen in survey.folders.values()):
        return False  # moved within the project: it comes back under its old name
    born = born_ns(tree.top + b"/" + path)
    return bool(born) and born < baseline.started_ns


def _has_name_that_stays(status: stat_result, baseline: Baseline, tree: Tree) -> bool:
    """Say whether another name in the project, from before the run, still leads to the same file."""
    survey = baseline.survey
    if survey is None:
        return False
    identity = (status.st_dev, status.st_ino)
    for path, seen in survey.files.items():
        if seen[:2] == identity:
            now = tree.status(path)
            if now is not None and (now.st_dev, now.st_ino) == identity:
                return True
    return False


def _is_same_file(path: Path, status: stat_result, baseline: Baseline) -> bool:
    return before.inode(baseline, path) == status.st_ino & before.INODE_MASK


def _after(tree: Tree, path: Path) -> After:
    """Read what stands at the path now; small text with its bytes, for a merge may need them."""
    try:
        status = tree.status(path)
        small = status is not None and status.st_size <= MERGE_BYTES_MAX
        if small:
            copy = tree.copy(path, limit_bytes=_DIGEST_BYTES_MAX)
            is_text = copy.entry.kind == Kind.FILE and b"\0" not in copy.data
            return After(copy.entry, data=copy.data if is_text else None)
        return After(tree.entry(path, limit_bytes=_DIGEST_BYTES_MAX))
    except worktree.TooLarge as large:
        numbers = {"size_bytes": large.size_bytes, "limit_bytes": _DIGEST_BYTES_MAX}
        return After(Entry(Kind.FILE, size=large.size_bytes), reason=Reason.TOO_LARGE, numbers=numbers)
    except worktree.ChangedWhileRead:
        return After(Entry(Kind.FILE), reason=Reason.CHANGED_WHILE_READ)
    except OSError as error:
        return After(Entry(Kind.FILE), reason=Reason.UNREADABLE, numbers={"cause": error.strerror or ""})


def _contents(
    found: list[Change], befores: Mapping[Path, Before], afters: Mapping[Path, After], limits: Limits
) -> dict[bytes, bytes]:
    """Gather the bytes by digest within the budget.

    Over it, bytes from before the run that are a blob of Git's stay with Git alone (their entry names the blob);
    others are a gap; bytes from after the run are left out.
    """
    contents: dict[bytes, bytes] = {}
    used = 0
    for change in found:
        data = befores[change.path].data if change.path in befores else None
        digest = change.before.digest
        if change.reason is not None or data is None or digest is None or digest in contents:
            continue
        if used + len(data) > limits.project_bytes_max or len(contents) >= aftermath.POINT_FILES_MAX:
            if change.before.oid is None:
                change.reason = Reason.BUDGET
                change.numbers = {"limit_bytes": limits.project_bytes_max}
            continue
        contents[digest] = data
        used += len(data)
    room = min(limits.project_bytes_max - used, limits.project_bytes_max // _AFTER_SHARE)
    for change in found:
        data = afters[change.path].data if change.path in afters else None
        digest = change.after.digest
        if change.reason is None and data is not None and digest is not None and digest not in contents:
            if len(data) > room:
                continue
            contents[digest] = data
            room -= len(data)
    return contents


def save(project: Project, run: Run, contents: Mapping[bytes, bytes], points_max: int, bytes_max: int) -> None:
    """Put the run's record into the store; a run that changed nothing leaves none. Raises StoreError."""
    if not run.changes:
        return
    from ckpt_run.capture.store import open_store  # sqlite3 costs 6 ms, and most commands change nothing

    with open_store(project.folder, create=True, points_max=points_max, bytes_max=bytes_max) as store:
        store.record_run(run, contents)
