"""Few exceptions; they carry facts (what, which path, which cause), never sentences: the card speaks."""

from __future__ import annotations


class Fault:
    """What went wrong: a key of the card's table of sentences."""

    NOT_A_PROJECT = "not_a_project"
    BARE_REPOSITORY = "bare_repository"
    UNSAFE_REPOSITORY = "unsafe_repository"
    CORRUPT_REPOSITORY = "corrupt_repository"
    CORRUPT_INDEX = "corrupt_index"
    GIT_MISSING = "git_missing"
    GIT_TOO_OLD = "git_too_old"
    GIT_FAILED = "git_failed"
    STORE_INSIDE_PROJECT = "store_inside_project"
    STORE_NOT_WRITABLE = "store_not_writable"
    STORE_FULL = "store_full"
    STORE_DAMAGED = "store_damaged"
    STORE_NEWER = "store_newer"
    STORE_NOT_PRIVATE = "store_not_private"
    COPY_FAILED = "copy_failed"
    UNKNOWN_ID = "unknown_id"
    AMBIGUOUS_ID = "ambiguous_id"
    OTHER_PROJECT_ID = "other_project_id"
    NO_POINTS = "no_points"
    NOTHING_TO_REDO = "nothing_to_redo"
    RUN_IN_PROGRESS = "run_in_progress"
    UNDO_IN_PROGRESS = "undo_in_progress"
    COULD_NOT_WRITE = "could_not_write"
    ROLL_BACK_FAILED = "roll_back_failed"
    READ_ONLY_PROJECT = "read_only_project"
    BAD_SETTING = "bad_setting"
    PATH_OUTSIDE_PROJECT = "path_outside_project"


class CkptError(Exception):
    """A fault with its facts: `fault` (a `Fault`), `path` (as the system gives it), `cause`, and more by name."""

    def __init__(
        self,
        fault: str,
        *,
        path: bytes | None = None,
        cause: str | None = None,
        **facts: object,
    ) -> None:
        """Hold the facts; `cause` is the system's or Git's own words (strerror, the last line of stderr)."""
        super().__init__(fault, path, cause, facts)
        self.fault = fault
        self.path = path
        self.cause = cause
        self.facts = facts


class StoreError(CkptError):
    """The store cannot be used; nothing in the project was touched."""


class GitError(CkptError):
    """Git could not answer."""


class UndoError(CkptError):
    """An undo could not go on."""
