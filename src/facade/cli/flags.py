"""Options where the library speaks of arguments: a sentence says `resume=True` to whoever writes Python, and --resume
to whoever gave a command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_ARGUMENT = re.compile(r"`([a-z_]+)(?:=True)?`")


def with_flags(sentence: str, command: Any, words: Sequence[str]) -> str:
    """The sentence, in which arguments in backticks are options of the command that the words name; others stay.
    `command`: as click makes it, with its groups and commands below it."""
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    flags = [flag for option in command.params for flag in option.opts if flag.startswith("--")]
    options = {flag.removeprefix("--").replace("-", "_"): flag for flag in flags}
    return _ARGUMENT.sub(lambda argument: options.get(argument[1], argument[0]), sentence)
