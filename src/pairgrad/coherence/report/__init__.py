"""Results: `report` of an audit, `run` of a recorded run, `annotations` for code hosts, `page` in HTML, `status` on a terminal."""
