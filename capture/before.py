"""What a path was before the run: from a copy, from the survey, from Git's blob, or why nobody knows."""

from __future__ import annotations

import os
import stat

from ckpt_run.capture import conversion
from ckpt_run.capture.baseline import ATTRIBUTE_FILE, is_below
from ckpt_run.capture.copies import bytes_of
from ckpt_run.capture.errors import Fault, GitError
from ckpt_run.capture.index import MODE_LINK, MODE_SUBMODULE, UINT32, NotAnIndex
from ckpt_run.capture.model import ABSENT, Entry, Kind, Known
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.worktree import digest_of, kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ckpt_run.capture.baseline import Baseline, Part
    from ckpt_run.capture.copies import Copied
    from ckpt_run.capture.index import Tracked
    from ckpt_run.capture.model import Fingerprint, Path
    from ckpt_run.capture.spool import Spool

_GIT_FILE_MODE = 0o666  # what Git creates a file with, less the umask (read-cache, entry.c: create_file)
_GIT_EXECUTABLE_MODE = 0o777
INODE_MASK = UINT32


class Before:
    """What a path was: its entry and bytes, or (entry as far as known and) the reason why that is not exact.

    `executable` is what Git knows of the permission bits of a clean file that no survey saw, else None; the entry's
    mode is then what Git gives a new file.
    """

    __slots__ = ("data", "entry", "executable", "known", "numbers", "reason")

    def __init__(
        self,
        entry: Entry,
        *,
        data: bytes | None = None,
        known: str | None = None,
        executable: bool | None = None,
        reason: str | None = None,
        numbers: Mapping[str, int | str] | None = None,
    ) -> None:
        """Hold the facts."""
        self.entry = entry
        self.data = data
        self.known = known
        self.executable = executable
        self.reason = reason
        self.numbers = dict(numbers or {})


# A path in a folder that nobody listed before. Its birth proves nothing: a rename-over save has a new one too.
_MAYBE_THERE = Before(Entry(Kind.FILE), reason=Reason.MAYBE_THERE_BEFORE)


def before_all(baseline: Baseline, paths: Iterable[Path], spool: Spool) -> dict[Path, Before]:
    """Say what each path was before the run. Starts Git only for clean tracked files."""
    found: dict[Path, Before] = {}
    clean: dict[int, dict[Path, Tracked]] = {}
    for path in paths:
        known = _without_git(baseline, path, spool)
        if known is not None:
            found[path] = known
            continue
        part = baseline.part_of(path)
        tracked = _tracked(part, path)
        if tracked is None:
            found[path] = _unknown_to_git(baseline, path)
        elif tracked.flag is not None:
            found[path] = _gap(baseline, path, Reason.FLAGGED, flag=tracked.flag)
        else:
            clean.setdefault(baseline.parts.index(part), {})[path] = tracked
    for number, wanted in clean.items():
        found.update(_from_blobs(baseline, baseline.parts[number], wanted))
    return found


def _seen(baseline: Baseline, path: Path) -> Fingerprint | None:
    survey = baseline.survey
    if survey is None:
        return None
    return survey.files.get(path) or survey.folders.get(path)


def inode(baseline: Baseline, path: Path) -> int | None:
    """The inode that the path had before, as far as Git notes one (`INODE_MASK`); None when nobody looked."""
    seen = _seen(baseline, path)
    if seen is None:
        noted = baseline.copied.get(path) or baseline.uncopied.get(path)
        seen = noted.fingerprint if noted is not None else None
    if seen is not None:
        return seen[1] & INODE_MASK
    tracked = _tracked(baseline.part_of(path), path)
    return None if tracked is None else tracked.stat[5]


def _gap(baseline: Baseline, path: Path, reason: str, **numbers: int | str) -> Before:
    """A path whose entry nobody knows exactly: its kind, mode and size as far as the survey saw them."""
    seen = _seen(baseline, path)
    entry = Entry(Kind.FILE) if seen is None else _shape(seen)
    return Before(entry, reason=reason, numbers=numbers)


def _shape(seen: Fingerprint) -> Entry:
    kind = kind_of(seen[2])
    size = seen[3] if kind in (Kind.FILE, Kind.LINK) else None
    mode = None if kind == Kind.LINK else stat.S_IMODE(seen[2])
    return Entry(kind, mode=mode, size=size, owner=(seen[6], seen[7]))


def _without_git(baseline: Baseline, path: Path, spool: Spool) -> Before | None:
    """What the copies and the survey tell; None when the path is for Git to say."""
    copy = baseline.copied.get(path)
    if copy is not None:
        return _from_copy(baseline, path, copy, spool)
    why = baseline.uncopied.get(path)
    if why is not None:
        entry = Entry(Kind.FILE) if why.fingerprint is None else _shape(why.fingerprint)
        return Before(entry, reason=why.reason, numbers=why.numbers)
    survey = baseline.survey
    if survey is None:
        return None
    seen = survey.files.get(path) or survey.folders.get(path)
    if seen is None:
        if is_below(path, baseline.ignored_folders) or is_below(path, survey.unread):
            return _MAYBE_THERE
        return Before(ABSENT, known=Known.SURVEY)
    shape = _shape(seen)
    if shape.kind == Kind.DIRECTORY:
        return Before(shape, known=Known.SURVEY)
    if shape.kind == Kind.SPECIAL:
        return Before(shape, reason=Reason.SPECIAL_FILE)
    return None


def _from_copy(baseline: Baseline, path: Path, copy: Copied, spool: Spool) -> Before:
    places = [spool.path] if copy.pack == spool.pack else []
    places += [spool.folder + b"/packs/" + copy.pack]
    data = bytes_of(copy, places)
    if data is None:
        return Before(copy.entry, reason=Reason.BYTES_LOST)
    if copy.entry.kind == Kind.ABSENT and baseline.survey is not None and path in baseline.survey.folders:
        return Before(_shape(baseline.survey.folders[path]), known=Known.SURVEY)
    return Before(copy.entry, data=data, known=Known.COPY)


def _tracked(part: Part, path: Path) -> Tracked | None:
    try:
        index = part.index
    except (NotAnIndex, GitError):
        return None
    tracked = index.tracked.get(path[len(part.prefix) :])
    return None if tracked is None or tracked.mode == MODE_SUBMODULE else tracked


def _unknown_to_git(baseline: Baseline, path: Path) -> Before:
    """A path that is neither copied nor tracked: ignored and left out, or not there before."""
    if path in baseline.ignored_files:
        suffix = b"." + path.rpartition(b".")[2]
        return _gap(baseline, path, Reason.IGNORED_LEFT_OUT, pattern="*" + os.fsdecode(suffix))
    if baseline.survey is not None:
        return _gap(baseline, path, Reason.GIT_BLIND)
    if is_below(path, baseline.ignored_folders) or is_below(path, baseline.unlooked):
        return _MAYBE_THERE
    if baseline.is_folder(path):
        return Before(Entry(Kind.DIRECTORY), known=Known.GIT)
    return Before(ABSENT, known=Known.GIT)


def _from_blobs(baseline: Baseline, part: Part, wanted: Mapping[Path, Tracked]) -> dict[Path, Before]:
    """Take clean files from Git, where their bytes are known to follow from the blob."""
    found: dict[Path, Before] = {}
    by_oid: dict[bytes, list[Path]] = {}
    for path, tracked in wanted.items():
        by_oid.setdefault(tracked.oid, []).append(path)
    try:
        attributes = _attributes(baseline, part, wanted)
        blobs = list(part.private.blobs(by_oid))
    except GitError as error:
        is_gone = not os.path.isdir(part.repository.common_dir + b"/objects")
        cause = "its repository is gone" if is_gone else error.cause or ""
        return {path: _gap(baseline, path, Reason.GIT_BLIND, cause=cause) for path in wanted}
    for oid, blob in blobs:
        for path in by_oid.pop(oid, ()):
            if blob is None:
                found[path] = _gap(baseline, path, Reason.BLOB_LOST, oid=oid.decode())
                continue
            found[path] = _from_blob(baseline, part, path, wanted[path], blob, attributes.get(path, {}))
    for paths in by_oid.values():
        for path in paths:
            found[path] = _gap(baseline, path, Reason.BLOB_LOST, oid=wanted[path].oid.decode())
    return found


def _from_blob(
    baseline: Baseline, part: Part, path: Path, tracked: Tracked, blob: bytes, attributes: Mapping[bytes, bytes]
) -> Before:
    if _has_unknown_attributes(baseline, path):
        return _gap(baseline, path, Reason.CONVERTED, attribute=os.fsdecode(ATTRIBUTE_FILE))
    seen = _seen(baseline, path)
    owner = None if seen is None else (seen[6], seen[7])
    is_link = stat.S_ISLNK(seen[2]) if seen is not None else not part.repository.is_off(b"core.symlinks")
    if tracked.mode == MODE_LINK and is_link:
        return Before(Entry(Kind.LINK, target=blob, size=len(blob), owner=owner), data=b"", known=Known.GIT)
    size: int | None = seen[3] if seen is not None else tracked.size_bytes
    if seen is None and not tracked.size_bytes and blob:
        size = None  # gitformat-index(5): 0 beside a blob that is not empty is a racy entry: nobody knows
    data, converter = conversion.exact_bytes(blob, size, attributes, part.repository)
    if data is None:
        return _gap(baseline, path, Reason.CONVERTED, attribute=converter or "")
    oid = tracked.oid.decode() if data == blob else None
    entry = Entry(Kind.FILE, size=len(data), digest=digest_of(data), oid=oid, owner=owner)
    if seen is not None:
        entry.mode = stat.S_IMODE(seen[2])
        return Before(entry, data=data, known=Known.GIT)
    if part.repository.is_off(b"core.filemode"):
        return Before(entry, data=data, known=Known.GIT)  # not even the executable bit is known
    executable = bool(tracked.mode & 0o100)
    entry.mode = git_mode(executable=executable)
    return Before(entry, data=data, known=Known.GIT, executable=executable)


def git_mode(*, executable: bool) -> int:
    """The permission bits that Git gives a new file under this process's umask."""
    return (_GIT_EXECUTABLE_MODE if executable else _GIT_FILE_MODE) & ~_umask()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _attributes(baseline: Baseline, part: Part, wanted: Mapping[Path, Tracked]) -> dict[Path, dict[bytes, bytes]]:
    """The attributes of the paths as they were before the run, whatever became of the `.gitattributes` files."""
    cut = len(part.prefix)
    names = {path[cut:]: path for path in wanted}
    scratch = part.private.folder + b"-attributes"
    _lay_out_attribute_files(baseline, part, scratch)
    found = part.private.attributes(names, conversion.ATTRIBUTES, worktree=scratch)
    return {names[name]: values for name, values in found.items()}


def _lay_out_attribute_files(baseline: Baseline, part: Part, scratch: bytes) -> None:
    """Write the `.gitattributes` files of before the run into a folder of their own, for Git to read."""
    if not os.path.isdir(scratch):
        os.mkdir(scratch, 0o700)
    tracked = part.index.tracked
    files = {path for path in tracked if _is_attribute_file(path)}
    for path in (*baseline.untracked, *baseline.changed, *baseline.ignored_files):
        if path.startswith(part.prefix) and _is_attribute_file(path):
            files.add(path[len(part.prefix) :])
    blobs = dict(part.private.blobs({tracked[path].oid for path in files if path in tracked}))
    for path in files:
        copy = baseline.copied.get(part.prefix + path)
        if copy is not None:
            data = _copied_attributes(copy, part)
        else:
            data = blobs.get(tracked[path].oid) if path in tracked else None
        if data is not None:
            place = scratch + b"/" + path
            os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
            with open(place, "wb") as file:
                file.write(data)


def _is_attribute_file(path: Path) -> bool:
    return path.rpartition(b"/")[2] == ATTRIBUTE_FILE


def _copied_attributes(copy: Copied, part: Part) -> bytes | None:
    """The bytes of a copied `.gitattributes`; None where no file stood there. Raises GitError when they are lost."""
    if copy.entry.kind != Kind.FILE:
        return None
    run_folder = os.path.dirname(part.private.folder)
    data = bytes_of(copy, (run_folder + b"/packs/" + copy.pack, run_folder + b"/spool"))
    if data is None:
        raise GitError(Fault.GIT_FAILED, cause="the copy of a .gitattributes file is lost")
    return data


def _has_unknown_attributes(baseline: Baseline, path: Path) -> bool:
    """Say whether a `.gitattributes` above the path was not copied though it is not what Git holds."""
    return any(
        _is_attribute_file(file) and path.startswith(file[: -len(ATTRIBUTE_FILE)]) for file in baseline.uncopied
    )
