"""``report.html``: the page of a run, and the page that compares runs."""
