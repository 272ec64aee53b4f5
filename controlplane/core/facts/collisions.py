"""How a transaction can fail for reasons that no rule decided, in words that services understand.

`db` turns its driver's errors into these; callers' mistakes are `services.errors`.
"""


class Collision(Exception):
    """Another transaction was in the way (deadlock, serialisation): nothing was written, run it again."""


class Unavailable(Exception):
    """The database did not answer in time or not at all: nothing is known to be written."""


class Refused(Exception):
    """A constraint of the database refused the write; nothing was written. `rule` is the constraint's name."""

    def __init__(self, rule: str, sentence: str) -> None:
        super().__init__(sentence)
        self.rule = rule
