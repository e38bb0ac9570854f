"""`ckpt config`: shows or sets the settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.shim import card_verbs, config
from ckpt_run.shim.cli.output import print_text

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    parser.add_argument("key", nargs="?", help="a setting (default: all)")
    parser.add_argument("value", nargs="?", help="its new value")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print or set. Raises CkptError(BAD_SETTING) with nothing changed."""
    if options.value is not None:
        try:
            config.write(os.environb, options.key, options.value)
        except OSError as error:
            path = config.file_of(os.environb)
            raise CkptError(Fault.STORE_NOT_WRITABLE, path=path, cause=error.strerror) from error
        return 0
    settings = config.load(os.environb)
    names = [options.key] if options.key else list(config.SETTINGS)
    lines = []
    for name in names:
        setting = config.setting_of(name)
        lines += card_verbs.setting_lines(name, getattr(settings, name), setting)
    print_text("\n".join(lines))
    return 0
