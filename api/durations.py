"""Times as people read them."""

import datetime as dt

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def duration_text(seconds: float) -> str:
    """Return the largest part of a duration and the next smaller one, such as `3m19s`; `0s` for the future."""
    left = max(0, int(seconds))
    numbers: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if number or numbers or unit == "s":
            numbers.append((number, unit))
    return "".join(
        f"{number}{unit}" for place, (number, unit) in enumerate(numbers[:2]) if number or not place
    )


def age_text(created: str, now: dt.datetime) -> str:
    """Return the time since; empty where the text is no time."""
    try:
        moment = dt.datetime.fromisoformat(created)
        return duration_text((now - moment).total_seconds())
    except (ValueError, TypeError):  # TypeError: without a zone
        return ""
