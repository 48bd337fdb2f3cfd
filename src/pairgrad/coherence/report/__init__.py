"""Results: `report` of an audit, with `summary`, `readings`, `run` of a recorded run, `sweep` of many configurations, `annotations` for code hosts, `page` in
HTML, `status` on a terminal.
"""
