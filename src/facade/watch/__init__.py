"""A page, and a table in the terminal, that follow runs, sites and networks while they go on.

The way of a round from the disk to the page, file by file:

1. `followed_file.py` reads what was added to a file that another process writes.
2. `round_rows.py` (of a run) and `site_events.py` (of a site) say what the new lines mean.
3. `watched_run.py` and `watched_network.py` keep what a page shows of it, section by section: accuracy over rounds,
   who chose which head (`head_strip.py`), who hears whom (`round_graph.py`), how fast it goes (`pace.py`).
4. `watching.py` looks at what there is (`places.py`) when somebody asks, and knows what has changed.
5. `server.py` sends that to browsers, if `access.py` lets them in; `page/` draws it, `terminal.py` prints it.

Files are opened for reading only, no lock is taken, and nothing is written: a run cannot notice who watches it.
"""
