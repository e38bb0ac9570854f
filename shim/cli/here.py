"""The project and the store that a verb is about: found, with dead runs closed and open undos ended."""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckpt_run.capture import project as projects
from ckpt_run.capture.errors import CkptError, Fault, GitError
from ckpt_run.capture.git import Discovery
from ckpt_run.capture.store import open_store
from ckpt_run.capture.worktree import Tree
from ckpt_run.shim import card, card_verbs, config
from ckpt_run.shim.run import close_interrupted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ckpt_run.capture.model import Entry, Path
    from ckpt_run.capture.project import Project
    from ckpt_run.capture.store import Store
    from ckpt_run.shim.config import Settings


class Here:
    """A project with its open store. `tree` is opened when it is asked for, and made when the folder is gone."""

    def __init__(self, project: Project, store: Store, settings: Settings) -> None:
        """Hold the three."""
        self.project = project
        self.store = store
        self.settings = settings
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
        return self._blobs.content(entry.oid)

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
    parser.add_argument("--project", metavar="DIR", help=card_verbs.PROJECT)


@contextmanager
def opened(options: argparse.Namespace, *, create: bool = False) -> Iterator[Here]:
    """The project around the current folder (or `--project`), ready for a verb. Raises CkptError."""
    environment = os.environb
    folder = os.path.abspath(os.fsencode(options.project)) if getattr(options, "project", None) else _current()
    project = projects.locate(top_of(folder), environment)
    settings = config.load(environment)
    if os.path.isdir(project.runs):
        close_interrupted(project, environment, settings)
    store = open_store(
        project.folder, create=create, points_max=settings.points_max, bytes_max=settings.project_bytes_max
    )
    here = Here(project, store, settings)
    try:
        finish_open_undos(here)
        yield here
    finally:
        here.close()


def finish_open_undos(here: Here) -> None:
    """End what a crash or a failed roll-back left open, and say so."""
    if not here.store.open_undos():
        return
    from ckpt_run.capture.undo.recover import recover

    for one in recover(here.store, here.tree):
        card.warn(f"ckpt: {card_verbs.recovered(one)}")


def top_of(folder: bytes) -> bytes:
    """The top level of the project around a folder; where Git knows none (any more), that of a known project."""
    try:
        return Discovery(folder, os.environb).finish().top
    except GitError as error:
        if error.fault not in (Fault.NOT_A_PROJECT, Fault.BARE_REPOSITORY, Fault.CORRUPT_REPOSITORY):
            raise
        known = {project.top for project in projects.known_projects(os.environb)}
        above = os.path.realpath(folder)
        while above not in known:
            if above in (b"/", b""):
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
    """The path of the project that a word of the command line names. Raises CkptError(PATH_OUTSIDE_PROJECT)."""
    given = os.path.join(_current(), os.fsencode(word))
    parent = os.path.realpath(os.path.dirname(os.path.normpath(given)))
    path = os.path.normpath(os.path.join(parent, os.path.basename(os.path.normpath(given))))
    if path == here.project.top:
        return b""
    if not path.startswith(here.project.top.rstrip(b"/") + b"/"):
        raise CkptError(Fault.PATH_OUTSIDE_PROJECT, path=os.fsencode(word))
    return path[len(here.project.top.rstrip(b"/")) + 1 :]


def new_id() -> str:
    """An id for an undo's own run."""
    return uuid.uuid4().hex[:10]
