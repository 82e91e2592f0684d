"""How nbgrader makes the students' version of the labs; see `docs/pages/teaching.md`."""

from __future__ import annotations

c = get_config()
c.CourseDirectory.course_id = "fries_nb"
c.CourseDirectory.ignore = [".ipynb_checkpoints", "__pycache__", "nbgrader_config.py"]
# An open answer stays `None`, and its check says so: a cell that raises would stop "Run All" before it.
c.ClearSolutions.code_stub = {"python": "# your answer"}
c.ClearSolutions.text_stub = "Your answer."
# A cell may start Spark on a busy server, and wait for a run: nbgrader's own 30 s would cost a solved lab its points.
c.Execute.timeout = 300
