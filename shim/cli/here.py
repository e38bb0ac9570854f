"""The project and the store that a verb is about: found, with dead runs closed and open undos ended."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckpt_run.capture import project as projects
from ckpt_run.capture.errors import CkptError, Fault, GitError
from ckpt_run.capture.git import Discovery
from ckpt_run.capture.store import open_store
from ckpt_run.capture.worktree import ChangedWhileRead, TooLarge, Tree, digest_of
from ckpt_run.shim import card, card_verbs, config

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from ckpt_run.capture.model import Entry, Path, Point, Run
    from ckpt_run.capture.project import Project
    from ckpt_run.capture.store import Store
    from ckpt_run.shim.config import Settings


_SHOWN_BYTES_MAX = 8 << 20
"""A larger file that only stands in the project is not read to be shown."""


class Here:
    """A project with its open store. `tree` is opened when it is asked for, and made when the folder is gone.

    `base` is the folder that relative paths of the command line begin at.
    """

    def __init__(self, project: Project, store: Store, settings: Settings, base: bytes) -> None:
        """Hold the four."""
        self.project = project
        self.store = store
        self.settings = settings
        self.base = base
        self._tree: Tree | None = None
        self._blobs: Blobs | None = None

    @property
    def tree(self) -> Tree:
        """The project's files."""
        if self._tree is None:
            os.makedirs(self.project.top, exist_ok=True)
            self._tree = Tree(self.project.top)
        return self._tree

    def contents(self, entry: Entry) -> bytes | None:
        """The bytes of a file's entry: from the store, else Git's blob of it, else None."""
        if entry.digest is not None:
            data = self.store.content(entry.digest)
            if data is not None:
                return data
        if entry.oid is None:
            return None
        if self._blobs is None:
            self._blobs = Blobs(self.project.top)
        data = self._blobs.content(entry.oid)
        is_right = data is None or entry.digest is None or digest_of(data) == entry.digest
        return data if is_right else None

    def contents_at(self, path: Path, entry: Entry) -> bytes | None:
        """As `contents`, also of an entry that still stands at the path, which nobody had to keep; up to a limit."""
        data = self.contents(entry)
        if data is not None or entry.digest is None or (entry.size or 0) > _SHOWN_BYTES_MAX:
            return data
        try:
            copy = self.tree.copy(path, limit_bytes=_SHOWN_BYTES_MAX)
        except (OSError, TooLarge, ChangedWhileRead):
            return None
        return copy.data if copy.entry.digest == entry.digest else None

    def close(self) -> None:
        """Close what is open."""
        if self._tree is not None:
            self._tree.close()
        if self._blobs is not None:
            self._blobs.close()
        self.store.close()


class Blobs:
    """Git's blobs by id, through one `git cat-file` that stays for all of them."""

    def __init__(self, top: bytes) -> None:
        """Open the repository at the top level; none there means no blobs."""
        # Inside a Git hook these name another repository, and GitPython hands them on; ours is named by its folder.
        for name in [name for name in os.environ if name.startswith("GIT_") and not name.startswith("GIT_CONFIG")]:
            del os.environ[name]
        import git  # GitPython costs 100 ms

        try:
            self._repository: git.Repo | None = git.Repo(os.fsdecode(top))
        except (git.InvalidGitRepositoryError, git.NoSuchPathError):
            self._repository = None
            return
        self._repository.git.update_environment(GIT_NO_LAZY_FETCH="1", GIT_OPTIONAL_LOCKS="0")

    def content(self, oid: str) -> bytes | None:
        """The blob's bytes, None when Git no longer has it."""
        if self._repository is None:
            return None
        try:
            data = self._repository.git.get_object_data(oid)[3]
        except ValueError:
            return None
        return bytes(data)

    def close(self) -> None:
        """End the program."""
        if self._repository is not None:
            self._repository.close()


def add_project_option(parser: argparse.ArgumentParser) -> None:
    """The option that names another folder than the current one."""
    parser.add_argument("--project", metavar="DIR", help="a folder of the project (default: the current one)")


def folder_asked(options: argparse.Namespace | None) -> bytes:
    """The folder that a verb is about: `--project`, else the current one."""
    asked: str | None = getattr(options, "project", None)
    return os.path.normpath(os.path.join(_current(), os.fsencode(asked))) if asked else _current()


@contextmanager
def opened(options: argparse.Namespace, tell: Callable[[str], None] | None = None) -> Iterator[Here]:
    """The project around the folder, ready for a verb: dead runs closed, open undos ended, and `tell` told of it.

    Without `tell`, that is said on stderr. Raises CkptError.
    """
    environment = os.environb
    folder = folder_asked(options)
    project = projects.locate(top_of(folder), environment)
    settings = config.load(environment)
    tell = tell or _warn
    _close_dead_runs(project, settings, tell)
    store = open_store(
        project.folder, create=False, points_max=settings.points_max, bytes_max=settings.project_bytes_max
    )
    here = Here(project, store, settings, _base(project.top, folder))
    try:
        _finish_open_undos(here, tell)
        yield here
    finally:
        here.close()


def _warn(text: str) -> None:
    card.warn(f"ckpt: {text}")


def _base(top: bytes, folder: bytes) -> bytes:
    """Relative paths begin at the current folder; where that is elsewhere, at the folder that was named."""
    current = _current()
    is_inside = (os.path.realpath(current) + b"/").startswith(top.rstrip(b"/") + b"/")
    return current if is_inside else folder


def _close_dead_runs(project: Project, settings: Settings, tell: Callable[[str], None]) -> None:
    try:
        if not os.listdir(project.runs):
            return
    except FileNotFoundError:
        return
    except OSError as error:
        raise CkptError(Fault.STORE_NOT_WRITABLE, path=project.runs, cause=error.strerror) from error
    from ckpt_run.shim.run import close_interrupted  # what it needs costs 20 ms

    for one in close_interrupted(project, os.environb, settings):
        tell(card_verbs.closed_run(one))


def _finish_open_undos(here: Here, tell: Callable[[str], None]) -> None:
    """End what a crash or a failed roll-back left open, and say so."""
    if not here.store.open_undos():
        return
    from ckpt_run.capture.undo.recover import recover

    for one in recover(here.store, here.tree):
        tell(card_verbs.recovered(one))


def found(here: Here, text: str) -> tuple[Point, list[Run]]:
    """The point of an id with all its runs, or the one run of it that is named; an id of another project is told.

    Raises CkptError.
    """
    try:
        return here.store.find(text)
    except CkptError as error:
        other = _project_of(here, text) if error.fault == Fault.UNKNOWN_ID else None
        if other is None:
            raise
        raise CkptError(Fault.OTHER_PROJECT_ID, id=text, top=other) from error


def _project_of(here: Here, text: str) -> bytes | None:
    """The top level of the other project in which this id is known; None when there is none."""
    for other in projects.known_projects(os.environb):
        if other.folder == here.project.folder:
            continue
        try:
            with open_store(other.folder, create=False) as store:
                store.find(text)
        except CkptError:
            continue
        return other.top
    return None


def top_of(folder: bytes) -> bytes:
    """The top level of the project around a folder; where Git knows none (any more), that of a known project."""
    try:
        if not os.path.isdir(folder):
            raise GitError(Fault.NOT_A_PROJECT, path=folder)
        return Discovery(folder, os.environb).finish().top
    except GitError as error:
        if error.fault not in {Fault.NOT_A_PROJECT, Fault.BARE_REPOSITORY, Fault.CORRUPT_REPOSITORY}:
            raise
        known = {project.top for project in projects.known_projects(os.environb)}
        above = os.path.realpath(folder)
        while above not in known:
            if error.fault == Fault.NOT_A_PROJECT and os.path.isdir(folder) and os.path.lexists(above + b"/.git"):
                # Git says only that it is none, as it does where there is nothing at all.
                raise CkptError(Fault.CORRUPT_REPOSITORY, path=above + b"/.git", cause=error.cause) from error
            if above in {b"/", b""}:
                raise CkptError(error.fault, path=folder, cause=error.cause) from error
            above = os.path.dirname(above)
        return above


def _current() -> bytes:
    """The current folder; where a command removed it, the path that it had."""
    try:
        return os.getcwdb()
    except FileNotFoundError:
        return os.environb.get(b"PWD", b"/")


def inside(here: Here, word: str) -> Path:
    """The path of the project that a word of the command line names. Raises CkptError(PATH_OUTSIDE_PROJECT).

    Links above the last name are followed, so that a path through one means the file it means; only where that
    leads out of the project is the path taken as it is spelt, for what was there before somebody put the link.
    """
    given = os.path.normpath(os.path.join(os.path.realpath(here.base), os.fsencode(word)))
    top = here.project.top.rstrip(b"/")
    for path in (os.path.join(os.path.realpath(os.path.dirname(given)), os.path.basename(given)), given):
        if path.rstrip(b"/") == top:
            return b""
        if path.startswith(top + b"/"):
            return path[len(top) + 1 :]
    raise CkptError(Fault.PATH_OUTSIDE_PROJECT, path=os.fsencode(word))


def new_id() -> str:
    """An id for an undo's own run."""
    return os.urandom(5).hex()
