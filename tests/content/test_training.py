"""Training of the content check is reproducible and reports its quality."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes.programs import CHECKOUT
from tumira.content.classifier import Classifier
from tumira.content.verdict import Label
from tumira.content.weights import read_weights

BEGIN = "<!-- make evaluate writes from here -->"
END = "<!-- to here -->"

pytestmark = [pytest.mark.long, pytest.mark.timeout(5400)]


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    subprocess.run(["make", "learning"], cwd=CHECKOUT, check=True)


def train(output: Path) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.train_screening", "--corpus-only", "--output", str(output)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "of our corpus alone" in done.stdout
    return output.read_bytes()


def test_the_same_messages_give_the_same_weights_also_without_the_collections(tmp_path: Path) -> None:
    weights = train(tmp_path / "first.bin")
    assert weights == train(tmp_path / "second.bin")
    classifier = Classifier(read_weights(weights))
    assert classifier.classify("Get 50% off all shoes this weekend. Hurry!").label is Label.PROMOTIONAL
    assert classifier.classify("Your code is 482913. Do not share it.").label is Label.TRANSACTIONAL


def test_the_evaluation_writes_its_card_into_a_document(tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    card.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "scripts.evaluate_screening", "--card", str(card)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    written = card.read_text(encoding="utf-8")
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "old" not in written
    assert "| our corpus, Shona |" in written
    assert "| Kind | Adverts refused | Service refused | Mixed refused |" in written
    assert written.split(BEGIN)[1].split(END)[0].strip() in done.stdout
