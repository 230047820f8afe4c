"""`esnlm report RUN ... --html FILE`: one HTML file about runs and studies, which needs nothing else.

Sections are blocks of plain data, which the template `page.html` shows; Jinja escapes every text. `sections.py` has the
sections of a run, `several.py` those that compare runs or show a study, and `page.py` puts the page together.
"""
