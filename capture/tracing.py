"""What the trace of a run adds to its record: by whom each change was, and entries from before the first touch.

Starts the traced command's session and reads it when the command has ended. It promises no certainty that the trace
does not give: a first copy counts only where nothing unseen, and no moved folder, can have put something else there.
"""

from __future__ import annotations

import os

from ckpt_run.capture import witness
from ckpt_run.capture.aftermath import POINT_FILES_MAX
from ckpt_run.capture.baseline import ATTRIBUTE_FILE, is_below
from ckpt_run.capture.before import Before
from ckpt_run.capture.errors import GitError
from ckpt_run.capture.index import NotAnIndex
from ckpt_run.capture.model import By, Change, Entry, Kind, Known
from ckpt_run.capture.precious import MADE_AGAIN_SUFFIXES
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.witness import GapKind, Touch, first_touch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ckpt_run.capture.aftermath import Touched
    from ckpt_run.capture.baseline import Baseline
    from ckpt_run.capture.changes import After
    from ckpt_run.capture.copies import Limits
    from ckpt_run.capture.model import Fingerprint, Path
    from ckpt_run.capture.spool import Spool
    from ckpt_run.capture.witness import Trace
    from ckpt_run.capture.witness.session import Session
    from ckpt_run.capture.worktree import Tree

_FILE_BYTES_MAX = 64 << 20
_NOT_WRITTEN = frozenset((Touch.BITS, Touch.TIMES))
_ABOUT_GIT = (Reason.GIT_INTERNAL, Reason.GIT_BLIND)  # the trace does not look into Git's own folder
# What was kept before these is still from before any touch: survivors are traced, and a lost end is an end.
_AFTERWARDS = (GapKind.SURVIVORS, GapKind.LOST)
_SYSTEM_ATTRIBUTES = b"/etc/gitattributes"


def is_wanted(trace: str, argv: Sequence[bytes], environment: Mapping[bytes, bytes]) -> bool:
    """Say whether a command shall be traced under the setting `trace` (`auto`, `always` or `never`).

    `auto` leaves a command alone that names a program which would lose its privileges.
    """
    if trace != "auto":
        return trace == "always"
    if not witness.possible().works:
        return False
    return witness.is_privileged() or witness.needs_privileges(argv, environment) is None


def start(baseline: Baseline, spool: Spool, limits: Limits, environment: Mapping[bytes, bytes]) -> Session | None:
    """Prepare the traced session of a run; None where the platform cannot."""
    wanted = first_touch.FirstTouch(
        spool.folder + b"/pack",
        _exact(baseline, environment),
        file_bytes_max=min(_FILE_BYTES_MAX, limits.project_bytes_max),
        run_bytes_max=limits.project_bytes_max,
    )
    return witness.start(baseline.project.top, spool.folder + b"/journal", first_touch=wanted)


def _exact(baseline: Baseline, environment: Mapping[bytes, bytes]) -> set[Path]:
    """Paths whose entry before is known exactly. A path too few costs time, one too many would cost a file."""
    exact = {path for path, copy in baseline.copied.items() if copy.entry.kind != Kind.ABSENT}
    part, survey = baseline.parts[0], baseline.survey
    if survey is None or _may_convert(baseline, environment):
        return exact
    try:
        tracked = part.index.tracked
    except (NotAnIndex, GitError):
        return exact
    files = (path for path, one in tracked.items() if one.flag is None and path in survey.files)
    exact.update(path for path in files if path not in baseline.uncopied)
    return exact


def _may_convert(baseline: Baseline, environment: Mapping[bytes, bytes]) -> bool:
    """Say whether Git may convert any file, or may lack a blob: asked broadly, for nothing is asked of Git."""
    repository, survey = baseline.parts[0].repository, baseline.survey
    if survey is None or any(path.endswith(ATTRIBUTE_FILE) for path in survey.files):
        return True
    if repository.converts_line_ends or any(b"attributesfile" in name for name in repository.settings):
        return True
    if any(b"promisor" in name or b"partialclone" in name for name in repository.settings):
        return True
    home = environment.get(b"XDG_CONFIG_HOME") or environment.get(b"HOME", b"") + b"/.config"
    places = (repository.common_dir + b"/info/attributes", home + b"/git/attributes", _SYSTEM_ATTRIBUTES)
    return any(os.path.lexists(place) for place in places)


def evidence(baseline: Baseline, spool: Spool) -> Evidence:
    """Read what was seen and kept of a run that has ended."""
    pack = spool.folder + b"/pack"
    return Evidence(baseline, witness.read_journal(spool.folder + b"/journal"), first_touch.read(pack), pack)


class Evidence:
    """What was seen and kept of one run. `trace` is what was seen."""

    def __init__(
        self, baseline: Baseline, trace: Trace, kept: Mapping[Path, first_touch.Touched], pack: bytes
    ) -> None:
        """Hold the facts and weigh them."""
        self._baseline = baseline
        self.trace = trace
        self._kept = kept
        self._pack = pack
        self._sees_all = all(gap.kind in _AFTERWARDS for gap in trace.gaps)
        self._above = {folder for path in (*trace.touched, *trace.trees) for folder in _folders_above(path)}
        self._sound = {path for path in kept if self._is_sound(path)}

    def join(self, touched: Touched) -> None:
        """Add to the paths to look at what only the trace knows of; take away gaps that it closes."""
        found = self._settled()
        for path, (reason, _) in list(touched.gaps.items()):
            if path in found and reason == Reason.MAYBE_THERE_BEFORE:
                del touched.gaps[path]
                touched.paths.add(path)
        inside = {path for path in found if is_below(path, self._baseline.ignored_folders)}
        inside -= {path for path in inside if self._is_made_again(path)}
        if len(inside) > POINT_FILES_MAX:
            inside = set()
        self._join_ignored(touched, inside)
        if self._baseline.survey is None:
            outside = {path for path in self._sound if not is_below(path, self._baseline.ignored_folders)}
            touched.paths.update(path for path in outside if not is_below(path, self._baseline.unlooked))
            touched.doubtful -= touched.paths
            touched.doubtful -= {path for path in touched.doubtful if self._has_only_touched_times(path)}
        touched.paths -= touched.gaps.keys()

    def _join_ignored(self, touched: Touched, inside: set[Path]) -> None:
        """What was touched in ignored folders: changes of their own where all is known, else the folder's gap."""
        for folder in self._baseline.ignored_folders:
            seen = {path for path in self.trace.touched if is_below(path, {folder})}
            missed = {path for path in seen - inside if not self._is_made_again(path) and not self._is_nothing(path)}
            if self.trace.complete and not missed and self._knows_moved(folder):
                touched.gaps.pop(folder, None)
            elif missed:
                touched.gaps.setdefault(folder, (Reason.IGNORED_FOLDER, {}))
        touched.paths.update(path for path in inside if not self._is_nothing(path))

    def _knows_moved(self, folder: Path) -> bool:
        """Say whether each file that a moved folder held, inside this one or around it, is known."""
        trees = {tree for tree in self.trace.trees if is_below(tree, {folder}) or is_below(folder, {tree})}
        was = self._baseline.ignored_surveys.get(folder)
        if not trees:
            return True
        return was is not None and all(path in self._sound for path in was.files if is_below(path, trees))

    def _is_made_again(self, path: Path) -> bool:
        return path.endswith(MADE_AGAIN_SUFFIXES) and os.path.lexists(self._baseline.project.top + b"/" + path)

    def _is_nothing(self, path: Path) -> bool:
        """Say whether a path was absent before and is now: a temporary name."""
        kept = self._kept.get(path)
        was_absent = kept is not None and path in self._sound and kept.entry.kind == Kind.ABSENT
        return was_absent and not os.path.lexists(self._baseline.project.top + b"/" + path)

    def _has_only_touched_times(self, path: Path) -> bool:
        return self.trace.complete and self.trace.touched.get(path) == {Touch.TIMES}

    def _settled(self) -> set[Path]:
        return {path for path in self._sound if _is_whole(self._kept[path])}

    def befores(self, paths: Iterable[Path]) -> dict[Path, Before]:
        """What those of the paths were that were copied whole just before the command first touched them."""
        found = {}
        for path in self._settled().intersection(paths):
            kept = self._kept[path]
            try:
                data = first_touch.bytes_of(self._pack, kept) if kept.offset is not None else b""
            except OSError:
                continue  # what is kept otherwise must do
            found[path] = Before(kept.entry, data=data, known=Known.FIRST_TOUCH)
        return found

    def complete_bits(self, befores: dict[Path, Before], afters: Mapping[Path, After], tree: Tree) -> None:
        """Where only the bits of a file were about to change, its bytes are those it has now, if nobody wrote."""
        for path in self._sound & befores.keys():
            kept, was, now = self._kept[path], befores[path], afters[path].entry
            if kept.reason is not None or kept.entry.kind != Kind.FILE or kept.entry.digest is not None:
                continue
            entry = Entry(Kind.FILE, mode=kept.entry.mode, size=kept.entry.size, owner=kept.entry.owner)
            if was.reason is None and was.entry.kind == Kind.FILE and was.known == Known.GIT:
                entry.digest, entry.oid, entry.size = was.entry.digest, was.entry.oid, was.entry.size
                befores[path] = Before(entry, data=was.data, known=Known.FIRST_TOUCH)
            elif was.reason is not None and now.digest is not None and self._is_unwritten(path, tree):
                entry.digest = now.digest
                befores[path] = Before(entry, known=Known.FIRST_TOUCH, data=afters[path].data)

    def _is_unwritten(self, path: Path, tree: Tree) -> bool:
        seen, now = self._kept[path].fingerprint, tree.fingerprint(path)
        is_same = seen is not None and now is not None and seen[:2] == now[:2] and seen[3:5] == now[3:5]
        return is_same and self.trace.touched.get(path, set()) <= _NOT_WRITTEN

    def stayed(self, paths: Iterable[Path], tree: Tree) -> set[Path]:
        """The paths at which the same file stands now that was copied when it was first touched."""
        seen = {path: self._kept[path].fingerprint for path in self._sound.intersection(paths)}
        now = {path: _now(tree, path) for path in seen}
        return {path for path, was in seen.items() if was and (at := now[path]) and was[:2] == at[:2]}

    def attributed(self, found: Iterable[Change], tree: Tree) -> list[Change]:
        """Say for each change who made it, and leave out those that are proven to be somebody else's."""
        kept = []
        for change in found:
            by = self._by(change.path, tree, is_whole_folder=False)
            if by != witness.OTHER:
                change.by = by
                kept.append(change)
        return kept

    def attributed_gaps(self, found: Iterable[Change], tree: Tree) -> list[Change]:
        """As `attributed`, for folders that stand for all below them."""
        kept = []
        for change in found:
            if change.reason in _ABOUT_GIT:
                kept.append(change)
                continue
            by = self._by(change.path, tree, is_whole_folder=True)
            if by != witness.OTHER:
                change.by = by
                kept.append(change)
        return kept

    def _by(self, path: Path, tree: Tree, *, is_whole_folder: bool) -> str:
        if is_whole_folder and path in self._above:
            return By.TRACED
        identities = [seen[:2] for seen in (_now(tree, path), self._seen(path)) if seen is not None]
        identity = next(
            (one for one in identities if one in self.trace.linked), identities[0] if identities else None
        )
        return witness.attribute([path], self.trace, {} if identity is None else {path: identity})[path]

    def _is_sound(self, path: Path) -> bool:
        """Say whether what was kept of a path is what stood there before the command did anything to it."""
        kept = self._kept[path]
        if path.endswith(b"/") or kept.reason is not None:
            return False
        seen, known = kept.fingerprint, self._seen(path)
        if seen is not None and seen == known:
            return True
        if any(folder in self.trace.trees for folder in _folders_above(path)):
            return False
        return self._sees_all or (seen is not None and seen[5] != 0 and seen[5] < self._baseline.started_ns)

    def _seen(self, path: Path) -> Fingerprint | None:
        """What was noted of the path before the run."""
        baseline, survey = self._baseline, self._baseline.survey
        if survey is not None:
            seen = survey.files.get(path) or survey.folders.get(path)
            if seen is not None:
                return seen
        for folder in _folders_above(path):
            if folder in baseline.ignored_surveys:
                inner = baseline.ignored_surveys[folder]
                return inner.files.get(path) or inner.folders.get(path)
        noted = baseline.uncopied.get(path) or baseline.copied.get(path)
        return None if noted is None else noted.fingerprint


def _is_whole(kept: first_touch.Touched) -> bool:
    entry = kept.entry
    return kept.offset is not None or entry.kind in (Kind.ABSENT, Kind.DIRECTORY) or entry.target is not None


def _now(tree: Tree, path: Path) -> Fingerprint | None:
    try:
        return tree.fingerprint(path)
    except OSError:
        return None


def _folders_above(path: Path) -> list[Path]:
    found = []
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        found.append(path)
    return found
