"""What MkDocs cannot do by itself: pages from outside docs/, links as they are in the repository,
and notebooks.

mkdocs.yml names this file. The pages are written to be read in the repository, too, so their links
are those of its folders: docs/start.md links to ../results/quickstart.md. In the site what lies in
docs/ stands beside results/ and configs/.
"""

import json
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PATTERNS = ("results/**/*.md", "results/**/*.png", "configs/README.md", "configs/**/*.yaml")
OUTSIDE = {path.relative_to(ROOT).as_posix() for pattern in PATTERNS for path in ROOT.glob(pattern)}
LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")  # [text](target)
# code in a table, with an escaped mark between two cells
PIPE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
# code, whose brackets are no links
BLOCK = re.compile(r"(^```.*?^```$|(?:^ {4}[^\n]*\n)+)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from outside docs/, and a page for each notebook."""
    for name in sorted(OUTSIDE):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for path in sorted((ROOT / "docs").rglob("*.ipynb")):
        name = path.relative_to(ROOT / "docs").with_suffix("").as_posix()
        for page, content in notebook_page(name, json.loads(path.read_text("utf-8"))).items():
            files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns the links of the repository into those of the site, and takes the backslash of `\\|`
    away, which a forge needs."""
    name = page.file.src_uri
    here = posixpath.dirname(name if name in OUTSIDE else f"docs/{name}")
    parts = BLOCK.split(markdown)
    parts[::2] = [LINK.sub(lambda link: site_link(link, here, name), text) for text in parts[::2]]
    parts[::2] = [PIPE.sub(lambda code: code[0].replace("\\|", "|"), text) for text in parts[::2]]
    return "".join(parts)


def site_link(link: re.Match, here: str, page: str) -> str:
    """Returns a link of a page in the repository's folder `here` as the site has it, or its text
    alone.

    What is no part of the site, such as a file of code, is not linked. A folder stands for its
    first page.
    """
    text, target = link.groups()
    if ":" in target or target.startswith("#"):
        return link[0]
    path, _, anchor = target.partition("#")
    there = posixpath.normpath(posixpath.join(here, path))
    if (ROOT / there).is_dir():
        there = next(
            (
                each
                for each in sorted(OUTSIDE)
                if each.startswith(f"{there}/") and each.endswith(".md")
            ),
            there,
        )
    if there.startswith("docs/"):
        there = re.sub(r"\.ipynb$", ".md", there.removeprefix("docs/"))
    elif there not in OUTSIDE:
        return text[1:-1]
    relative = posixpath.relpath(there, posixpath.dirname(page) or ".")
    return f"{text}({relative}{'#' * bool(anchor)}{anchor})"


def notebook_page(name: str, notebook: dict) -> dict[str, str | bytes]:
    """Returns a notebook as a page, with the pictures of its outputs: contents by the names of
    their files."""
    file = posixpath.basename(name)
    pictures: dict[str, str | bytes] = {}
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/svg+xml" in data:
                picture = f"{file}_{len(pictures) + 1}.svg"
                pictures[posixpath.join(posixpath.dirname(name), picture)] = "".join(
                    data["image/svg+xml"]
                )
                parts.append(f"![what the cell above draws]({picture})")
            else:
                parts.append("```text\n" + "".join(data["text/plain"]).rstrip() + "\n```")
    download = f"[Download this notebook]({file}.ipynb){{ download }}"
    title, *rest = parts
    return {f"{name}.md": "\n\n".join([title, *rest, download]), **pictures}
