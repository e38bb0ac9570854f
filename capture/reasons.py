"""Why Undo leaves, keeps or refuses: one table of names, each with the numbers its sentence needs.

The sentences stand in the card; the JSON prints the names.
"""

from __future__ import annotations


class Reason:
    """Names of reasons. The comment after each says which numbers come with it."""

    # A change that Undo leaves, because the state before is not known exactly.
    TOO_LARGE = "too_large"  # size_bytes, limit_bytes
    TOO_MANY = "too_many"  # limit_files
    BUDGET = "budget"  # limit_bytes
    CONVERTED = "converted"  # attribute
    FLAGGED = "flagged"  # flag: skip-worktree, assume-unchanged
    UNREADABLE = "unreadable"  # cause
    CHANGED_WHILE_READ = "changed_while_read"
    SPECIAL_FILE = "special_file"
    IGNORED_FOLDER = "ignored_folder"
    IGNORED_LEFT_OUT = "ignored_left_out"  # pattern
    MAYBE_THERE_BEFORE = "maybe_there_before"
    MOVED_IN = "moved_in"
    BLOB_LOST = "blob_lost"  # oid
    NESTED_REPOSITORY = "nested_repository"
    GIT_INTERNAL = "git_internal"
    PERMISSIONS_UNKNOWN = "permissions_unknown"
    OWNER = "owner"
    GIT_BLIND = "git_blind"  # cause

    # A file that an undo holds back, because somebody's later work stands there.
    OVERLAP = "overlap"
    BINARY_CHANGED_SINCE = "binary_changed_since"
    LARGE_CHANGED_SINCE = "large_changed_since"  # size_bytes, limit_bytes
    LINK_CHANGED_SINCE = "link_changed_since"
    TYPE_CHANGED_SINCE = "type_changed_since"
    DELETED_SINCE = "deleted_since"
    PERMISSIONS_CHANGED_SINCE = "permissions_changed_since"
    CREATED_AND_EDITED = "created_and_edited"
    CREATED_SINCE = "created_since"
    RENAMED_SINCE = "renamed_since"  # to
    CHANGED_SINCE = "changed_since"
    PARENT_CHANGED_SINCE = "parent_changed_since"
    FOLDER_NOT_EMPTY = "folder_not_empty"
    UNREADABLE_NOW = "unreadable_now"  # cause
    BYTES_LOST = "bytes_lost"
    ASKED_TO_KEEP = "asked_to_keep"
