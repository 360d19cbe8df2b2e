"""How the models of the pack were trained, read from examples/models/*/MODEL_CARD.md. Standard library only."""
import re


class Card:
    def __init__(self, root, name):
        self.name = name
        self.text = (root / "examples" / "models" / name / "MODEL_CARD.md").read_text()
        self.joined = " ".join(self.text.split())

    def found(self, pattern):
        match = re.search(pattern, self.joined)
        if not match:
            raise ValueError(f"{self.name}: the card does not say {pattern}")
        return match

    def million_tokens(self):
        """Tokens of its training, in millions."""
        return int(self.found(r"\d+ steps, (\d+) tokens")[1]) / 1e6

    def of_target(self):
        """The share of the rows that the target wrote, 0 to 1."""
        return sum(float(x) for x in re.findall(r"^\| answers_\w+ \| ([\d.]+)% \|", self.text, re.M)) / 100

    def started_from(self):
        """The model whose weights it began with, in words; none if it was trained from scratch."""
        match = re.search(r"Started from (the draft [^`]*)?`(\w+)`", self.joined)
        return "" if not match else f"a draft for `{match[2]}`" if match[1] else f"`{match[2]}`"
