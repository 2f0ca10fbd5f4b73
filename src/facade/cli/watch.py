"""`facade watch`: a page, or a table in the terminal, that follows runs, sites and networks while they go on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from facade.cli.console import err, out


def watch(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Runs, directories of runs, a site's home, a local network; site.json files of others."),
    ],
    terminal: Annotated[bool, typer.Option("--terminal", help="In this terminal instead of a page.")] = False,
    listen: Annotated[
        str,
        typer.Option(help="HOST:PORT of the page; beyond this machine it asks for a token.", show_default="loopback"),
    ] = "",
    token: Annotated[bool, typer.Option("--token", help="Ask for a token on this machine too.")] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="Keep the token there, so that open pages outlive a restart.")
    ] = None,
) -> None:
    """Follow runs, real sites and networks while they go on, on a page for a browser. Nothing is written to them."""
    from facade.runs.stop_signals import StopSignals
    from facade.watch.access import kept_token, new_token
    from facade.watch.places import Places
    from facade.watch.serving import page_server, serving
    from facade.watch.terminal import watch_in_terminal
    from facade.watch.watching import Watching

    watching = Watching(Places(paths))
    if terminal:
        watch_in_terminal(watching, out)
        return
    given = kept_token(token_file) if token_file else new_token() if token else ""
    server = page_server(watching, listen, given)
    ended = threading.Event()
    with StopSignals().listening(lambda _: ended.set()), serving(server):
        out.print(f"Watch at {server.url}", soft_wrap=True)
        err.print("It only reads; Ctrl-C ends it, and what is watched goes on.", soft_wrap=True)
        ended.wait()
