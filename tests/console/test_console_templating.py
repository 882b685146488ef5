"""Numbers as pages show them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from casekit import each_of

from causerie.hosted.console.charts import Chart, stacked
from causerie.http.pages.assets import Statics
from causerie.http.pages.branding import Branding
from causerie.http.pages.templating import environment, short, since


@each_of(
    ("number", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1.0k"),
        (9_949, "9.9k"),
        (9_960, "10k"),
        (999_499, "999k"),
        (999_999, "1.0M"),
        (34_000_000, "34M"),
        (999_700_000_000, "1.0T"),
        (2_500_000_000_000_000, "2,500T"),
    ],
)
def test_a_number_is_short(number: int, shown: str) -> None:
    assert short(number) == shown


def test_no_axis_repeats_a_label() -> None:
    made = environment(Statics("/static"), Branding())
    axis = made.get_template("parts/charts.html").module.axis  # type: ignore[attr-defined]
    ticks = Chart((), (), (0.0, 0.002, 0.004, 0.006))
    said = re.findall(r"<li>(.*?)</li>", axis(ticks, "${:.2f}".format))
    assert said == ["$0.01", "", "", "$0.00"]

    starts = [datetime(2026, 11, 21, tzinfo=UTC) + timedelta(hours=n) for n in range(49)]
    labels = made.get_template("parts/charts.html").module.starts  # type: ignore[attr-defined]
    html = labels(stacked(starts, {"a": {starts[0]: 1.0}}), True)
    times = re.findall(r"<time[^>]*>(.*?)</time>", html)
    assert len(set(times)) == len(times) > 3


@each_of(
    ("seconds", "words"),
    [
        (0, "this minute"),
        (-59, "this minute"),
        (-60, "1 minute ago"),
        (-7_199, "1 hour ago"),
        (-86_400, "yesterday"),
        (-5.9 * 86_400, "5 days ago"),
        (6.99 * 86_400, "in 7 days"),
        (86_400, "tomorrow"),
        (45 * 86_400, "in 2 months"),
        (-40 * 86_400, "last month"),
        (-800 * 86_400, "2 years ago"),
    ],
)
def test_how_long_ago_is_said_as_the_script_says_it(seconds: float, words: str) -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    assert since(now + timedelta(seconds=seconds), now) == words
