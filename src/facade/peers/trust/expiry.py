"""The last day of a list."""

from __future__ import annotations

import datetime

from facade.errors import ExperimentError


def today() -> datetime.date:
    """The date in UTC."""
    return datetime.datetime.now(datetime.UTC).date()


def check_date(text: str) -> None:
    """ValueError for what is no date; an empty text stands for none."""
    if not text:
        return
    try:
        datetime.date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"expires = '{text}' is no date ({error}); expected one such as '2027-03-31'") from None


def days_left(expires: str) -> int | None:
    """Days until the last day is over, 0 on that day; None without one."""
    return (datetime.date.fromisoformat(expires) - today()).days if expires else None


def refuse_expired(what: str, expires: str) -> None:
    """ExperimentError if the last day of something is over."""
    left = days_left(expires)
    if left is not None and left < 0:
        raise ExperimentError(
            f"{what} expired after {expires}, and it is {today()} in UTC; ask the federation's admin for the next one"
            " (facade network update --expires), from this site's round on"
        )
