"""A hook of mkdocs: links into the repository become plain text on the site.

Pages link to source files by relative path, for readers of the repository; the site holds
only docs/. `tools/generate_docs.py --check` follows those links.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page's text without links that leave docs/."""
    folder = posixpath.dirname(page.file.src_uri)

    def keep(match: re.Match[str]) -> str:
        leads = posixpath.normpath(posixpath.join(folder, match[2]))
        return match[1] if leads.startswith("..") else match[0]

    return _LINK.sub(keep, markdown)
