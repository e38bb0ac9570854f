"""A private repository: asks Git about a project without the project's `.git` noticing.

It is a folder of ours with a copy of the index, of HEAD and of the settings that decide what Git says about files.
It borrows the project's objects. So no question can write in the project's `.git`, start a hook, a filter or an
fsmonitor program, or be answered in another form because of a setting; and what is asked after the run is answered
under the settings from before it. Knows nothing of the store.
"""

from __future__ import annotations

import os

from ckpt_run.capture import durable
from ckpt_run.capture.git import Process, parse_batch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ckpt_run.capture.git import Repository
    from ckpt_run.capture.model import Path

# Settings that decide what Git says about files. None of them names a program.
_KEPT_SETTINGS = (
    b"core.autocrlf",
    b"core.eol",
    b"core.filemode",
    b"core.ignorecase",
    b"core.precomposeunicode",
    b"core.protecthfs",
    b"core.protectntfs",
    b"core.sparsecheckout",
    b"core.sparsecheckoutcone",
    b"core.symlinks",
    b"index.sparse",
    b"index.threads",
    b"sparse.expectfilesoutsideofpatterns",
)
_PATH_SETTINGS = (b"core.excludesfile", b"core.attributesfile")


class PrivateRepository:
    """A repository of ours that answers for a project's worktree, frozen as it was when it was made."""

    __slots__ = ("_common_dir", "_environment", "folder", "top")

    def __init__(self, folder: bytes, top: bytes, common_dir: bytes, environment: Mapping[bytes, bytes]) -> None:
        """Use the one that stands in `folder` (absolute); `environment` gives PATH and the like."""
        self.folder = folder
        self.top = top
        self._common_dir = common_dir
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith((b"GIT_", b"LC_", b"LANG"))
        }
        self._environment.update(
            {
                b"GIT_DIR": folder,
                b"GIT_WORK_TREE": top,
                b"GIT_OBJECT_DIRECTORY": common_dir + b"/objects",
                b"GIT_CONFIG_GLOBAL": b"/dev/null",  # since Git 2.32; HOME does the same for 2.30 and 2.31
                b"GIT_CONFIG_SYSTEM": b"/dev/null",
                b"GIT_CONFIG_NOSYSTEM": b"1",
                b"HOME": folder,
                b"XDG_CONFIG_HOME": folder,
                b"GIT_NO_LAZY_FETCH": b"1",
                b"GIT_NO_REPLACE_OBJECTS": b"1",
                b"GIT_LITERAL_PATHSPECS": b"1",
                b"GIT_TERMINAL_PROMPT": b"0",
                b"LC_ALL": b"C",
            }
        )
        if b"GIT_EXEC_PATH" in environment:
            self._environment[b"GIT_EXEC_PATH"] = environment[b"GIT_EXEC_PATH"]

    @property
    def index(self) -> bytes:
        """Where the copy of the index is."""
        return self.folder + b"/index"

    def _process(
        self, words: Sequence[bytes], *, given: bytes | None = None, more: Mapping[bytes, bytes] | None = None
    ) -> Process:
        environment = dict(self._environment)
        environment.update(more or {})
        return Process([b"-C", environment[b"GIT_WORK_TREE"], *words], environment, given=given)

    def status(self, *, index: bytes | None = None) -> Process:
        """Start to ask what is changed, untracked and ignored; Git may refresh the (private) index asked."""
        words = [b"status", b"--porcelain=v2", b"-z", b"--untracked-files=all", b"--ignored=matching"]
        words += [b"--no-renames", b"--ignore-submodules=all", b"--no-ahead-behind"]
        return self._process(words, more={b"GIT_INDEX_FILE": index or self.index})

    def unsplit_index(self) -> None:
        """Write the private index as one file, where it was split (git-update-index(1))."""
        self._process([b"update-index", b"--no-split-index"]).answer()

    def list_index(self) -> Process:
        """Start to list the index: flags, modes and paths; `parse_listing` reads it."""
        return self._process([b"ls-files", b"-s", b"-v", b"-z"])

    def attributes(
        self, paths: Iterable[Path], names: Sequence[bytes], *, worktree: bytes | None = None
    ) -> dict[Path, dict[bytes, bytes]]:
        """The values of the attributes for each path: `unspecified`, `set`, `unset` or a word.

        With `worktree`, the `.gitattributes` files are read from that folder instead of the project's.
        """
        given = b"".join(path + b"\0" for path in paths)
        more = {b"GIT_WORK_TREE": worktree} if worktree else None
        words = [b"check-attr", b"-z", b"--stdin", *names]
        out = self._process(words, given=given, more=more).answer()
        found: dict[Path, dict[bytes, bytes]] = {}
        fields = out.split(b"\0")
        for path, name, value in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
            found.setdefault(path, {})[name] = value
        return found

    def blobs(self, oids: Iterable[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """Give (oid, bytes) for each blob, None where the object is gone or unreadable. Holds the answer in memory.

        Git stops at an object that it cannot read, and may be stopped itself: the rest is asked for again, and an
        object at which it stopped twice is lost.
        """
        waiting = list(oids)
        stopped_at = None
        while waiting:
            _, out, _ = self._process([b"cat-file", b"--batch"], given=b"\n".join(waiting) + b"\n").finish()
            answered = list(parse_batch(out))  # in the order of the questions
            yield from answered
            del waiting[: len(answered)]
            if waiting and waiting[0] == stopped_at:
                yield waiting.pop(0), None
            stopped_at = waiting[0] if waiting else None


def parse_listing(out: bytes) -> tuple[set[Path], set[Path], set[Path]]:
    """Read `git ls-files -s -v -z`: paths that Git shall not look at, those that it leaves out, submodules.

    git-ls-files(1), -v: a lower-case letter is assume-unchanged, S skip-worktree.
    """
    unlooked, left_out, submodules = set(), set(), set()
    for item in out.split(b"\0"):
        if item.startswith((b"H 1006", b"H 1007", b"H 120")) or not item:
            continue
        path = item.partition(b"\t")[2]
        if item[2:8] == b"160000":
            submodules.add(path)
        elif item[:1].islower():
            unlooked.add(path)
        elif item[:1] == b"S":
            left_out.add(path)
    return unlooked, left_out, submodules


def make_private_repository(
    repository: Repository, folder: bytes, environment: Mapping[bytes, bytes], *, index: bytes | None
) -> PrivateRepository:
    """Make the private repository in `folder` from the project's as it stands now.

    `index` is an earlier private index of the same project, refreshed and still true, to be moved in; None
    copies the project's. Raises OSError when something cannot be copied.
    """
    if not os.path.isdir(folder):
        for place in (folder, folder + b"/refs", folder + b"/info"):
            os.mkdir(place, 0o700)
    head = repository.head + b"\n" if repository.head else b"ref: refs/heads/unborn\n"
    _write(folder + b"/HEAD", head)
    _write(folder + b"/config", _private_config(repository, folder, environment))
    for source in (
        repository.common_dir + b"/info/exclude",
        repository.common_dir + b"/info/attributes",
        repository.git_dir + b"/info/sparse-checkout",
    ):
        _copy_file(source, folder + b"/info/" + os.path.basename(source))
    for name in os.listdir(folder):
        if name.startswith((b"index", b"sharedindex.")):
            os.unlink(folder + b"/" + name)
    if index is None or not _moved(index, folder + b"/index"):
        _copy_file(repository.git_dir + b"/index", folder + b"/index")
        _copy_shared_indexes(repository.git_dir, folder)
    return PrivateRepository(folder, repository.top, repository.common_dir, environment)


def _moved(source: bytes, target: bytes) -> bool:
    """Move a file; False when another run was quicker."""
    try:
        os.rename(source, target)
    except FileNotFoundError:
        return False
    return True


def _copy_shared_indexes(git_dir: bytes, folder: bytes) -> None:
    """A split index (git-update-index(1)) keeps most entries in `sharedindex.*` beside it."""
    for name in os.listdir(git_dir):
        if name.startswith(b"sharedindex."):
            _copy_file(git_dir + b"/" + name, folder + b"/" + name)


def _private_config(repository: Repository, folder: bytes, environment: Mapping[bytes, bytes]) -> bytes:
    """Write the settings that decide what Git says of files, and switch off all that could start a program."""
    lines = [b"[core]", b"bare = false", b"fsmonitor = false", b"hooksPath = /dev/null", b"splitIndex = false"]
    # A tool that zeroes stat data (checkStat=minimal) must not hide a rewrite from us.
    lines += [b"trustctime = true", b"checkStat = default", b"safecrlf = false", b"preloadIndex = true"]
    object_format = repository.settings.get(b"extensions.objectformat")
    lines.append(b"repositoryformatversion = " + (b"1" if object_format else b"0"))
    for name in _PATH_SETTINGS:
        path = _default_path(name, repository, environment)
        if name == b"core.attributesfile" and _copy_file(path, folder + b"/info/global-attributes"):
            path = folder + b"/info/global-attributes"
        lines.append(name.partition(b".")[2] + b" = " + _quoted(path))
    for name in _KEPT_SETTINGS:
        if name in repository.settings:
            section, _, key = name.partition(b".")
            lines += [b"[" + section + b"]", key + b" = " + _quoted(repository.settings[name])]
    if object_format:
        lines += [b"[extensions]", b"objectformat = " + _quoted(object_format)]
    return b"\n".join(lines) + b"\n"


def _default_path(name: bytes, repository: Repository, environment: Mapping[bytes, bytes]) -> bytes:
    """Where the user's own ignore or attributes file is (gitignore(5), gitattributes(5))."""
    home = environment.get(b"HOME", b"")
    path = repository.settings.get(name)
    if path is None:
        base = environment.get(b"XDG_CONFIG_HOME") or home + b"/.config"
        return base + (b"/git/ignore" if name == b"core.excludesfile" else b"/git/attributes")
    if path.startswith(b"~/"):
        return home + path[1:]
    return os.path.expanduser(path) if path.startswith(b"~") else os.path.join(repository.top, path)


def _quoted(value: bytes) -> bytes:
    """Quote a value for a config file (git-config(1), "Syntax")."""
    escaped = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n").replace(b"\t", b"\\t")
    return b'"' + escaped + b'"'


def _write(path: bytes, data: bytes) -> None:
    """Write a file of the private repository anew, unless it holds these bytes already."""
    try:
        with open(path, "rb", buffering=0) as file:
            if file.read() == data:
                return
    except FileNotFoundError:
        pass  # a new private repository
    durable.write_private(path, data)


def _copy_file(source: bytes, target: bytes) -> bool:
    """Copy a file of the repository with its mtime; False when there is none.

    Git's racy check reads the index's mtime (Documentation/technical/racy-git.txt).
    """
    try:
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        try:
            os.unlink(target)
        except FileNotFoundError:
            return False
        return False
    try:
        info = os.fstat(fd)
        pieces = []
        while piece := os.read(fd, 1 << 22):
            pieces.append(piece)
    finally:
        os.close(fd)
    _write(target, b"".join(pieces))
    os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))
    return True
