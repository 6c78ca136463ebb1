"""The goals of the benchmark, and whether a run met them."""

from typing import Final

from msgspec import Struct

NO_KANNEL: Final = "Kannel is not installed (Debian: `apt-get install kannel`)"


class Goal(Struct, frozen=True):
    text: str
    measured: str
    # None where it could not be measured.
    met: bool | None


class Goals:
    """Collects the goals that the sections of a run have measured."""

    def __init__(self) -> None:
        self._goals: list[Goal] = []

    def at_least(self, text: str, goal: float, measured: float, more: str = "") -> None:
        self._goals.append(Goal(f"{text}: at least {goal:g}", f"{measured:.2f}{more}", measured >= goal))

    def at_most(self, text: str, goal: float, measured: float, unit: str = "", more: str = "") -> None:
        words = f"{text}: at most {goal:g}{unit}"
        self._goals.append(Goal(words, f"{measured:.2f}{unit}{more}", measured <= goal))

    def against_kannel(self, text: str, goal: float, ours: float, kannels: float | None) -> None:
        """Note a ratio to Kannel in the same run."""
        text += " ÷ Kannel"
        if kannels is None:
            self._goals.append(Goal(f"{text}: at least {goal:g}", NO_KANNEL, None))
        else:
            self.at_least(text, goal, ours / kannels, f" ({ours:,.0f}/s and {kannels:,.0f}/s)")

    def show(self) -> None:
        """Print a table: `goal | measured | met`."""
        if not self._goals:
            return
        print("goal | measured | met\n--- | --- | ---")
        for goal in self._goals:
            print(f"{goal.text} | {goal.measured} | {_WORDS[goal.met]}")


_WORDS: Final = {True: "yes", False: "no", None: "not measured"}
