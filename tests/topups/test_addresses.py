"""Addresses follow from the public key as wallets derive them, and a mistyped address is noticed."""

from decimal import Decimal
from hashlib import sha256
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.core.errors import OperatorError
from tumira.topups.usdt.addresses import (
    _ALPHABET,
    PLACES_MAX,
    derive_address,
    network_name,
    payment_link,
    read_address,
    read_xpub,
    with_checksum,
)
from tumira.topups.usdt.deposit_rules import depth, last_final, to_units, to_usdt

# Of "test test … junk", the phrase that development chains unlock; never for money.
XPUB: Final = (
    "xpub6Ce9NcJvTk36xtLSrJLZqE7wtgA5deCeYs7rSQtreh4cj6ByPtrg9sD7V2FNFLPnf8heNP3FG"
    "keV9qwfzvZNSd54JoNXVsXFYSYwHsnJxqP"
)
CONTRACT: Final = "0x55d398326f99059fF775485246999027B3197955"
FIRST: Final = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"


def base58(payload: bytes) -> str:
    data = payload + sha256(sha256(payload).digest()).digest()[:4]
    number, text = int.from_bytes(data), ""
    while number:
        number, rest = divmod(number, 58)
        text = _ALPHABET[rest] + text
    return text


def payload_of(text: str) -> bytes:
    number = 0
    for letter in text:
        number = number * 58 + _ALPHABET.index(letter)
    return number.to_bytes(82)[:-4]


def test_addresses_are_those_that_a_wallet_derives() -> None:
    key = read_xpub(XPUB)
    wallet = (
        FIRST,
        "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
        "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
    )
    assert [with_checksum(derive_address(key, place)) for place in range(3)] == list(wallet)
    assert derive_address(key, 0) == FIRST.lower()
    places = [*range(20), PLACES_MAX - 1]
    assert len({derive_address(key, place) for place in places}) == len(places)
    assert XPUB not in repr(key)


def test_a_private_key_is_refused_and_not_repeated() -> None:
    payload = payload_of(XPUB)
    assert read_xpub(base58(payload)) == read_xpub(XPUB)
    private = base58(bytes.fromhex("0488ade4") + payload[4:45] + b"\x00" + bytes(31) + b"\x01")
    assert private.startswith("xprv")
    for text in (private, "xprv9s21ZrQH143K"):
        with pytest.raises(OperatorError, match="keep it offline") as caught:
            read_xpub(text)
        assert text not in str(caught.value)


def changed(position: int, value: bytes) -> str:
    payload = payload_of(XPUB)
    return base58(payload[:position] + value + payload[position + len(value) :])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "xpub",
        XPUB[:-1],
        XPUB[:-1] + "Q",
        XPUB + "1",
        XPUB.replace("9", "0", 1),
        "test test test test test test test test test test test junk",
        changed(0, bytes.fromhex("043587cf")),
        changed(4, bytes([4])),
        changed(4, bytes([0])),
        changed(45, b"\x05"),
        "é" * 111,
        "x" * 100_000,
    ],
)
def test_what_is_no_public_key_of_the_account_level_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match="give the xpub") as caught:
        read_xpub(text)
    assert len(text) < 10 or text not in str(caught.value)


# The examples of EIP-55 itself.
@pytest.mark.parametrize(
    "address",
    [
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
        CONTRACT,
    ],
)
def test_a_checksum_is_written_and_checked(address: str) -> None:
    assert with_checksum(address.lower()) == address
    assert read_address(address) == address.lower()
    assert read_address(address.lower()) == address.lower()
    assert read_address("0x" + address[2:].upper()) == address.lower()


def test_a_letter_in_the_wrong_case_and_what_is_no_address_is_noticed() -> None:
    for position in range(2, 42):
        letter = FIRST[position]
        slipped = FIRST[:position] + letter.swapcase() + FIRST[position + 1 :]
        assert (read_address(slipped) is None) == letter.isalpha()
    for text in ("", "0x", FIRST[:-1], FIRST + "0", FIRST[2:], "0x" + "g" * 40, FIRST + "\n"):
        assert read_address(text) is None


def test_a_link_calls_the_token_on_its_chain() -> None:
    assert (
        payment_link(CONTRACT.lower(), 56, FIRST.lower(), Decimal(5))
        == f"ethereum:{CONTRACT}@56/transfer?address={FIRST}&uint256=5000000000000000000"
    )
    assert payment_link(CONTRACT, 97, FIRST) == f"ethereum:{CONTRACT}@97/transfer?address={FIRST}"
    assert network_name(56) == "BNB Smart Chain (BEP20)"
    assert network_name(31337) == "chain 31337"


@given(st.integers(min_value=0, max_value=2**256 - 1))
def test_no_unit_is_lost_on_the_way_to_an_amount_and_back(units: int) -> None:
    assert to_units(to_usdt(units)) == units


def test_a_block_stays_when_it_is_deep_and_the_nodes_say_so() -> None:
    assert [depth(block, head=100) for block in (99, 100, 101)] == [2, 1, 0]
    assert last_final(head=100, finalized=100, confirmations=15) == 86
    assert depth(86, head=100) == 15
    assert last_final(head=100, finalized=80, confirmations=15) == 80
    assert last_final(head=10, finalized=10, confirmations=15) < 0
