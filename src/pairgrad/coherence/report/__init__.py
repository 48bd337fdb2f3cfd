"""Results: `report` of an audit, with `summary`, `readings`, `run` of a recorded run, `annotations` for code hosts, `page` in HTML, `status` on a terminal."""
