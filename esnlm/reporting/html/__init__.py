"""`esnlm report RUN ... --html FILE`: one HTML file that tells of runs and studies, and needs nothing else.

`page.py` puts it together, `material.py` reads what a run has, `sections/` holds a file for each section of a run,
`several.py` compares runs, `study.py` shows a study's table, `charts.py` draws, and `markup.py` writes HTML in which all
text is escaped. `page.css` and `page.js` are put into the page. To add a section, see `sections/__init__.py`.
"""
