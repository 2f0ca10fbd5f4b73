"""Tables on a terminal: nothing is ever cut."""

import io

import pytest
from rich.console import Console

from facade.cli.wide_tables import TextColumn, print_wide

LABELS = [TextColumn("algorithm", ["facade", "el"]), TextColumn("lr", ["0.01", "0.05"])]
COLUMNS = [TextColumn(f"number\n{i}", [f"{i}{i}.{i}\n[{i}, {i}]", f"-{i}"]) for i in range(6)]


def printed(width, labels=LABELS):
    terminal = io.StringIO()
    print_wide(Console(file=terminal, width=width), labels, COLUMNS, gap=2)
    return terminal.getvalue()


@pytest.mark.parametrize("width", [120, 60, 40, 20])
def test_every_cell_is_there_at_any_width(width):
    text = printed(width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= max(width, len("(1) algorithm facade, lr 0.01"))
    for i in range(6):
        assert f"{i}{i}.{i}" in text
        assert f"[{i}, {i}]" in text
        assert f"-{i}" in text


def test_parts_begin_with_the_labels():
    assert printed(120).count("facade") == 1
    assert printed(50).count("facade") == printed(50).count("algorithm") == 2


def test_labels_that_leave_no_room_are_numbered():
    text = printed(60, [TextColumn("algorithm", ["a" * 50, "b" * 50])])
    assert f"(1) algorithm {'a' * 50}\n(2) algorithm {'b' * 50}\n" in text
    assert "(1)    00.0" in text
