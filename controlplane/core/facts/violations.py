"""What the doctor says: an invariant that stored rows break, in a sentence, with the first rows that do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """One query of one invariant that found rows; `rows` are some of them, as text."""

    invariant: str
    sentence: str
    rows: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.invariant}: {self.sentence} Broken by: {'; '.join(self.rows)}"
