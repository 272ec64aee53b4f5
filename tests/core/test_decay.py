"""Amounts that halve over time."""

from datetime import timedelta

import pytest

from controlplane.core.decay import ONE, decayed, gathered, left_after, microseconds, window

WEEK = microseconds(timedelta(hours=168))
FIVE_MINUTES = microseconds(timedelta(minutes=5))


def test_one_device_sampled_every_five_minutes_has_half_of_its_asymptote_after_a_half_life() -> None:
    """T17: a step of 0.000344 of a device was cut off to nothing, for ever."""
    score = 0
    for _ in range(WEEK // FIVE_MINUTES):
        score = decayed(score, FIVE_MINUTES, WEEK) + gathered(1, FIVE_MINUTES, WEEK)
    assert abs(score * 2 - window(WEEK)) < window(WEEK) // 10**8
    assert score == pytest.approx(gathered(1, WEEK, WEEK), abs=WEEK // FIVE_MINUTES), "as if it had been one step"


@pytest.mark.parametrize("step", [1, 7, 1_000, 999_983])
def test_no_step_is_too_small_to_count(step: int) -> None:
    """One device for a microsecond is a device-microsecond."""
    assert gathered(1, step, WEEK) == pytest.approx(step, abs=1 + step // 10**6)


def test_a_half_life_leaves_half_and_two_a_quarter_whatever_the_amount() -> None:
    assert [left_after(WEEK * times, WEEK) for times in (0, 1, 2, 200)] == [ONE, ONE // 2, ONE // 4, 0]
    assert decayed(10**15, WEEK * 3, WEEK) == 10**15 // 8


def test_decay_in_steps_is_decay_at_once() -> None:
    amount, thirds = 10**18, WEEK // 3
    stepwise = amount
    for _ in range(3):
        stepwise = decayed(stepwise, thirds, WEEK)
    assert abs(stepwise - amount // 2) <= 3


def test_more_time_leaves_less_down_to_the_microsecond() -> None:
    parts = [left_after(WEEK // 3 + extra, WEEK) for extra in range(5)]
    assert parts == sorted(set(parts), reverse=True)
