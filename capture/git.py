"""The only place that starts git. Knows nothing of the store.

A project's own repository is read twice, by programs that write nothing (`rev-parse`, `config --list`). All other
questions go to a private repository (see `private`).
"""

from __future__ import annotations

import os
import time

from ckpt_run.capture import durable
from ckpt_run.capture.errors import Fault, GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ckpt_run.capture.model import Path

# A flag that git rev-parse does not know is printed as it is (git-rev-parse(1)), so it can part the answers.
_PART = b"--ckpt-part"
# git rev-parse --local-env-vars (2.39), and what would write a trace or change an answer.
_KEPT_VARIABLES = (
    b"GIT_CEILING_DIRECTORIES",
    b"GIT_CONFIG_COUNT",
    b"GIT_CONFIG_GLOBAL",
    b"GIT_CONFIG_NOSYSTEM",
    b"GIT_CONFIG_PARAMETERS",
    b"GIT_CONFIG_SYSTEM",
    b"GIT_DISCOVERY_ACROSS_FILESYSTEM",
    b"GIT_EXEC_PATH",
)


_FALSE = (b"", b"false", b"no", b"off", b"0")  # git-config(1), "Values"; what else converts to a number is true


class Process:
    """A git that runs; `finish` waits for it and gives what it printed.

    `complained` says, after that, whether it printed anything on stderr.
    """

    __slots__ = ("_errors", "_out", "_pid", "arguments", "complained")

    def __init__(
        self, arguments: Sequence[bytes], environment: Mapping[bytes, bytes], *, given: bytes | None = None
    ) -> None:
        """Start `git` with the arguments; `given` is what it reads. Raises GitError when there is no git."""
        self.arguments = list(arguments)
        self.complained = False
        self._errors = _scratch()
        fed = _scratch() if given is not None else os.open(b"/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        if given is not None:
            durable.write_all(fed, given)
            os.lseek(fed, 0, os.SEEK_SET)
        self._out, printed = os.pipe()
        try:
            self._pid = os.posix_spawnp(
                b"git",
                [b"git", *self.arguments],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, fed, 0),
                    (os.POSIX_SPAWN_DUP2, printed, 1),
                    (os.POSIX_SPAWN_DUP2, self._errors, 2),
                ],
            )
        except OSError as error:
            os.close(self._out)
            os.close(self._errors)
            raise GitError(Fault.GIT_MISSING, cause=error.strerror) from error
        finally:
            os.close(fed)
            os.close(printed)

    def finish(self) -> tuple[int, bytes, bytes]:
        """Wait for the end; gives (exit code, stdout, stderr)."""
        pieces = []
        while piece := os.read(self._out, 1 << 18):
            pieces.append(piece)
        os.close(self._out)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        os.lseek(self._errors, 0, os.SEEK_SET)
        errors = os.read(self._errors, 1 << 14)
        os.close(self._errors)
        self.complained = bool(errors)
        return code, b"".join(pieces), errors

    def answer(self) -> bytes:
        """Wait for the end and give stdout; raises GitError with Git's last words when it failed."""
        code, out, errors = self.finish()
        if code != 0:
            raise GitError(fault_of(errors), cause=last_words(errors), command=self.arguments)
        return out


def _scratch() -> int:
    """An unnamed file: a pipe for stderr could fill up and stop Git for good."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ckpt", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def last_words(errors: bytes) -> str:
    """The last line that Git printed on stderr, without `fatal: `."""
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("fatal: ").removeprefix("error: ") if lines else ""


def fault_of(errors: bytes) -> str:
    """Tell from Git's words (LC_ALL=C, Git 2.30 to 2.52) what is wrong with the repository."""
    if b"not a git repository" in errors:
        return Fault.NOT_A_PROJECT
    if b"must be run in a work tree" in errors:
        return Fault.BARE_REPOSITORY
    if b"dubious ownership" in errors or b"unsafe repository" in errors:
        return Fault.UNSAFE_REPOSITORY
    if b"index file" in errors or b"index uses" in errors or b"bad signature" in errors or b"bad index" in errors:
        return Fault.CORRUPT_INDEX
    return Fault.CORRUPT_REPOSITORY


class Repository:
    """Where a project's repository is, and the settings that decide what Git says of its files."""

    __slots__ = ("asked_ns", "common_dir", "git_dir", "head", "origins", "settings", "top")

    def __init__(
        self,
        top: bytes,
        git_dir: bytes,
        common_dir: bytes,
        head: bytes | None,
        settings: dict[bytes, bytes],
        origins: frozenset[bytes] = frozenset(),
        asked_ns: int = 0,
    ) -> None:
        """Hold the facts: absolute paths, the commit of HEAD (None when unborn), setting -> last value.

        `origins` are the files that the settings came from, where Git was asked, and `asked_ns` is when.
        """
        self.asked_ns = asked_ns
        self.origins = origins
        self.top = top
        self.git_dir = git_dir
        self.common_dir = common_dir
        self.head = head
        self.settings = settings

    def may_run_filter(self, name: bytes) -> bool:
        """Say whether the settings define a filter driver of this name that would convert."""
        prefix = b"filter." + name + b"."
        return any(prefix + key in self.settings for key in (b"clean", b"smudge", b"process"))

    def is_off(self, name: bytes) -> bool:
        """Say whether a setting that is on by default was switched off."""
        return self.settings.get(name, b"true").lower() in _FALSE

    @property
    def is_sparse(self) -> bool:
        """Say whether Git leaves paths out of the worktree by patterns."""
        return self.settings.get(b"core.sparsecheckout", b"").lower() not in _FALSE

    @property
    def converts_line_ends(self) -> bool:
        """Say whether a setting alone makes Git convert line ends; any number but 0 is true (git-config(1))."""
        return self.settings.get(b"core.autocrlf", b"").lower() not in _FALSE


class Discovery:
    """Looks for the repository of a folder: two programs that run while the caller does other work."""

    __slots__ = ("_asked_ns", "_config", "_folder", "_parse")

    def __init__(self, folder: bytes, environment: Mapping[bytes, bytes], *, bound: bool = False) -> None:
        """Start to look from `folder`; `bound` takes GIT_DIR and GIT_WORK_TREE from the environment too."""
        self._folder = folder
        self._asked_ns = time.time_ns()
        kept = reading_environment(environment)
        if bound:
            kept.update({name: environment[name] for name in (b"GIT_DIR", b"GIT_WORK_TREE")})
        places = [b"--show-toplevel", b"--absolute-git-dir", b"--git-common-dir", b"HEAD"]
        words = [word for place in places for word in (place, _PART)]
        self._parse = Process([b"-C", folder, b"rev-parse", *words], kept)
        self._config = Process([b"-C", folder, b"config", b"-z", b"--list", b"--show-origin"], kept)

    def finish(self) -> Repository:
        """Wait for both. Raises GitError: NOT_A_PROJECT, BARE_REPOSITORY, UNSAFE_…, CORRUPT_REPOSITORY."""
        code, out, errors = self._parse.finish()
        config_code, listed, config_errors = self._config.finish()
        places = out.split(b"\n" + _PART + b"\n")
        if len(places) < 4:
            raise GitError(fault_of(errors), cause=last_words(errors))
        if config_code != 0:
            raise GitError(Fault.CORRUPT_REPOSITORY, cause=last_words(config_errors))
        top, git_dir, common_dir, head = places[:4]
        settings = {}
        fields = listed.split(b"\0")  # git-config(1), -z: origin NUL name LF value NUL
        for item in fields[1::2]:
            name, _, value = item.partition(b"\n")
            settings[name] = value if b"\n" in item else b"true"
        files = {origin[5:] for origin in fields[0::2] if origin.startswith(b"file:")}
        origins = frozenset(os.path.join(top, file) for file in files)  # Git goes to the top level before it reads
        # Git gives the common directory relative to the folder it was asked in (git-rev-parse(1)).
        common = os.path.normpath(os.path.join(self._folder, common_dir))
        is_commit = code == 0 and len(head) in (40, 64)
        return Repository(top, git_dir, common, head if is_commit else None, settings, origins, self._asked_ns)


def reading_environment(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The environment in which a project's own repository is looked for: only what helps to find and read it."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(b"GIT_") or name in _KEPT_VARIABLES or name.startswith(b"GIT_CONFIG_")
    }
    kept.update({b"LC_ALL": b"C", b"LANGUAGE": b"C", b"GIT_NO_LAZY_FETCH": b"1", b"GIT_OPTIONAL_LOCKS": b"0"})
    kept.pop(b"GIT_CONFIG", None)
    return kept


class Status:
    """Git's answer about a worktree: what is not as the index says, what is new, what is ignored.

    `changed` maps a tracked path that is staged or differs in the worktree to its two letters (porcelain v2 XY;
    `uu` for a conflict); folders in `ignored_folders` and `nested` come without the slash.
    """

    __slots__ = ("changed", "ignored_files", "ignored_folders", "nested", "untracked")

    def __init__(self) -> None:
        """Start empty."""
        self.changed: dict[Path, bytes] = {}
        self.untracked: set[Path] = set()
        self.nested: set[Path] = set()
        self.ignored_files: set[Path] = set()
        self.ignored_folders: set[Path] = set()


def parse_status(out: bytes) -> Status:
    """Read `git status --porcelain=v2 -z` (git-status(1), "Porcelain Format Version 2")."""
    status = Status()
    for item in out.split(b"\0"):
        kind = item[:2]
        if kind == b"1 ":
            letters, path = item[2:4], item.split(b" ", 8)[8]
            status.changed[path] = letters
        elif kind == b"u ":
            status.changed[item.split(b" ", 10)[10]] = b"uu"
        elif kind == b"? ":
            path = item[2:]
            (status.nested if path.endswith(b"/") else status.untracked).add(path.rstrip(b"/"))
        elif kind == b"! ":
            path = item[2:]
            (status.ignored_folders if path.endswith(b"/") else status.ignored_files).add(path.rstrip(b"/"))
    return status


def parse_batch(out: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Read `git cat-file --batch` (git-cat-file(1), "BATCH OUTPUT"); an answer that was cut off is none."""
    start = 0
    while (end := out.find(b"\n", start)) >= 0:
        words = out[start:end].split(b" ")
        start = end + 1
        if len(words) == 3 and words[1] in (b"blob", b"tree", b"commit", b"tag"):
            size = int(words[2])
            if out[start + size : start + size + 1] != b"\n":
                return
            yield words[0], out[start : start + size]
            start += size + 1
        else:
            yield words[0], None


def sealed_output(folder: bytes, words: Sequence[bytes]) -> bytes:
    """What a git prints that knows no repository and no settings, in a folder of ours; exit code 1 is no failure.

    For `diff --no-index` and `merge-file`, which need neither. Raises GitError.
    """
    environment = {name: value for name, value in os.environb.items() if not name.startswith(b"GIT_")}
    environment.update(
        {
            b"GIT_CONFIG_GLOBAL": b"/dev/null",
            b"GIT_CONFIG_NOSYSTEM": b"1",
            b"GIT_CEILING_DIRECTORIES": os.path.dirname(folder),
            b"HOME": folder,
            b"XDG_CONFIG_HOME": folder,
            b"LC_ALL": b"C",
        }
    )
    code, out, errors = Process([b"-C", folder, *words], environment).finish()
    if code not in (0, 1):
        raise GitError(Fault.GIT_FAILED, cause=last_words(errors))
    return out
