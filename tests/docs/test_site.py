"""The site is built without a warning and has every page, and links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def listed(nav: list | dict | str) -> set[str]:
    """Returns the files that a part of the navigation names."""
    if isinstance(nav, str):
        return {nav}
    parts = nav.values() if isinstance(nav, dict) else nav
    return {file for part in parts for file in listed(part)}


def test_every_page_is_in_the_navigation():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    notebooks = {
        f"notebooks/{file.stem}.md" for file in (ROOT / "docs" / "notebooks").glob("*.ipynb")
    }
    assert listed(nav) == {file.name for file in PAGES} | notebooks | {"results/README.md"}


def kept() -> set[str]:
    """Returns the files of the repository, without those that only this checkout has."""
    found = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if found.returncode:
        pytest.skip("needs a checkout made by git")
    return set(found.stdout.splitlines())


def test_links_lead_to_files_that_are_kept():
    files = kept()
    folders = {str(folder) for file in files for folder in Path(file).parents}
    for page in (file for file in files if file.endswith(".md")):
        text = re.sub(
            r"^```.*?^```$|`[^`\n]*`", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL
        )
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if not re.match(r"[a-z]+:", target):
                found = os.path.normpath(Path(page).parent / target)
                assert found in files | folders, f"{page}: {target}"


def test_files_that_results_and_studies_name_are_kept():
    files = kept()
    name = r"(?<![\w/.-])(?:benchmarks|configs|esnlm|experiments|results|tests)/[\w./-]+\.(?:json|md|py|yaml)\b"
    for file in (
        file
        for file in files
        if file.startswith(("results/", "configs/", "experiments/"))
        and file.endswith((".md", ".yaml"))
    ):
        for found in re.findall(name, (ROOT / file).read_text()):
            assert found in files or "/NAME." in found, f"{file}: {found}"


@pytest.mark.nightly
def test_the_site_is_built(tmp_path):
    pytest.importorskip("material", reason="needs MkDocs: pip install -e '.[docs]'")
    pytest.importorskip("mkdocstrings", reason="needs mkdocstrings: pip install -e '.[docs]'")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Restore a run" in (tmp_path / "states.html").read_text()
    assert "Returns log p(s) of each sentence" in (tmp_path / "api.html").read_text()
