"""How results are shown: a table, plots, a page, JSON, and one request's life."""
