"""Contacts of the operator, from the settings to the links on pages."""

import pytest

from tumira.core.errors import OperatorError
from tumira.core.settings.support import NO_SUPPORT, SupportLink, read_support


def test_contacts_are_links_in_a_fixed_order() -> None:
    found = read_support(
        {
            "TUMIRA_SUPPORT_WHATSAPP": "+27821230001",
            "TUMIRA_SUPPORT_PHONE": " +263 77 120 0001 ",
            "TUMIRA_SUPPORT_EMAIL": "help@sms.example",
        }
    )
    assert found.contacts == [
        SupportLink("tel:+263771200001", "+263 77 120 0001"),
        SupportLink("mailto:help@sms.example", "help@sms.example"),
        SupportLink("https://wa.me/27821230001", "WhatsApp +27821230001"),
    ]
    assert found.name == "support (+263 77 120 0001 or help@sms.example or WhatsApp +27821230001)"
    assert found.short_name == "support (+263 77 120 0001)"


def test_none_has_to_be_set() -> None:
    assert read_support({}) == NO_SUPPORT
    assert NO_SUPPORT.contacts == []
    assert NO_SUPPORT.name == NO_SUPPORT.short_name == "support"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PHONE", "0771200001"),
        ("PHONE", "+0771200001"),
        ("PHONE", "+263 77 call us"),
        ("PHONE", "+26377"),
        ("WHATSAPP", "https://wa.me/263771200001"),
        ("WHATSAPP", "+263771200001 or +263771200002"),
        ("EMAIL", "help"),
        ("EMAIL", 'help@sms.example" onclick="x'),
        ("EMAIL", "help@sms.example?cc=x@sms.example"),
    ],
)
def test_a_contact_that_cannot_be_one_is_refused_at_the_start(name: str, value: str) -> None:
    with pytest.raises(OperatorError, match=f"TUMIRA_SUPPORT_{name}"):
        read_support({f"TUMIRA_SUPPORT_{name}": value})
