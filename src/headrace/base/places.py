"""Whether a file can be written, asked before the work that it is for."""

from __future__ import annotations

import os
from pathlib import Path


def why_unwritable(path: Path) -> str:
    """Why no file can be written at `path`, in a few words; nothing where one can."""
    if path.is_dir():
        return "a folder stands there"
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder '{folder}'"
    if not os.access(path if path.exists() else folder, os.W_OK):
        return "writing there is not allowed"
    return ""
