"""The content policy for customers: public, linked, and true."""

import httpx
import pytest

from tests.support.processes.service import Service
from tumira.content.classifier import classify
from tumira.content.verdict import Label
from tumira.dashboard.pages.landing import POLICY_EXAMPLES


@pytest.mark.parametrize(("good", "bad"), POLICY_EXAMPLES)
def test_the_examples_are_judged_as_the_page_says(good: str, bad: str) -> None:
    assert (classify(good).label, classify(bad).label) == (Label.TRANSACTIONAL, Label.PROMOTIONAL)


@pytest.mark.long
def test_everybody_can_read_the_policy(service: Service) -> None:
    for path in ("/", "/docs"):
        assert "/content-policy" in httpx.get(service.base + path).text
    page = httpx.get(service.base + "/content-policy")
    assert page.status_code == 200
    assert "<h1>What you may send</h1>" in page.text
    assert "Your loan: the instalment of R412 is due on 25 June." in page.text
