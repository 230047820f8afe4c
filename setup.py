"""Ships configs/ inside the installed package, as esnlm/configs. Everything else is said in
pyproject.toml."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["esnlm", "esnlm.*"]), "esnlm.configs"],
    package_dir={"esnlm.configs": "configs"},
    package_data={
        "esnlm": ["py.typed"],
        "esnlm.configs": ["**/*.yaml"],
        "esnlm.evaluation": ["anchors.csv", "blimp_pairs.npy"],
        "esnlm.reports": ["page.css", "page.js", "page.html"],
    },
)
