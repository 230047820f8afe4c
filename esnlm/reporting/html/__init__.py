"""`esnlm report RUN ... --html FILE`: one HTML file about runs and studies, which needs nothing else.

Sections are made of plain data (`blocks.py`, `charts.py`), which the template `page.html` shows. Jinja escapes every text.
`files.py` reads a run, `sections.py` has the sections of a run, `several.py` compares runs, `study.py` shows the table of a
study, and `page.py` puts the page together, with `page.css` and `page.js` in it.
"""
