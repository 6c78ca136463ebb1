"""A real chain of its own for tests, run by Hardhat; every payment is a block of its own."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.support.npm import Node, node_with
from tests.support.processes.ports import free_port
from tests.support.processes.service import NO_TLS

CHAIN_ID: Final = 56
USDT: Final = 10**18
START_S: Final = 60

_PACKAGES: Final = Path(__file__).parent / "chain"
_GAS: Final = hex(1_000_000)
# Always the same, so that the same payment after a revert is the same transaction.
_GAS_PRICE: Final = 10**10


class RpcError(Exception):
    pass


@dataclass(slots=True)
class LocalChain:
    """A running chain with tokens on it: ours, and another of the same kind."""

    url: str
    client: httpx.Client
    contracts: Mapping[str, Any]
    payer: str = ""
    hasty_payer: str = ""
    token: str = ""
    other_token: str = ""
    six_decimals: str = ""
    purse: str = ""

    def ask(self, method: str, *parameters: Any) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        answer = self.client.post(self.url, json=call).json()
        if "error" in answer:
            raise RpcError(answer["error"]["message"])
        return answer["result"]

    def head(self) -> int:
        return int(self.ask("eth_blockNumber"), 16)

    def block(self, number: str) -> Any:
        is_whole = False
        return self.ask("eth_getBlockByNumber", number, is_whole)

    def mine(self, count: int = 1) -> None:
        self.ask("hardhat_mine", hex(count))

    def snapshot(self) -> str:
        """Save the state for one `revert`."""
        return str(self.ask("evm_snapshot"))

    def revert(self, snapshot: str) -> None:
        assert self.ask("evm_revert", snapshot) is True

    @contextmanager
    def one_block(self) -> Iterator[None]:
        self.ask("evm_setAutomine", *[False])
        try:
            yield
            self.mine()
        finally:
            self.ask("evm_setAutomine", *[True])

    def pay(self, address: str, units: int, *, token: str | None = None, is_hasty: bool = False) -> str:
        """Transfer a token, and return the transaction; a hasty payment comes first in its block."""
        data = self._call("Token", "transfer(address,uint256)", address, units)
        if is_hasty:
            return self._send(token or self.token, data, self.hasty_payer, 2 * _GAS_PRICE)
        return self._send(token or self.token, data)

    def pay_twice(self, first: str, much: int, second: str, more: int) -> str:
        signature = "pay(address,address,uint256,address,uint256)"
        return self._send(self.purse, self._call("Purse", signature, self.token, first, much, second, more))

    def fail_to_pay(self, address: str, units: int) -> str:
        self._send(self.token, self._call("Token", "stop(bool)", 1))
        before = self.head()
        data = self._call("Token", "transfer(address,uint256)", address, units)
        with pytest.raises(RpcError, match="stopped"):
            self._send(self.token, data)
        # Said so, and all the same made a block of it.
        assert self.head() == before + 1
        (tx_hash,) = self.block(hex(before + 1))["transactions"]
        assert self.ask("eth_getTransactionReceipt", tx_hash)["status"] == "0x0"
        self._send(self.token, self._call("Token", "stop(bool)", 0))
        return str(tx_hash)

    def deploy(self, name: str, *numbers: int) -> str:
        code = "0x" + self.contracts[name]["code"] + "".join(f"{number:064x}" for number in numbers)
        tx_hash = self._send(None, code)
        return str(self.ask("eth_getTransactionReceipt", tx_hash)["contractAddress"]).lower()

    def _call(self, contract: str, signature: str, *values: str | int) -> str:
        words = [int(value, 16) if isinstance(value, str) else value for value in values]
        selector = self.contracts[contract]["selectors"][signature]
        return f"0x{selector}" + "".join(f"{word:064x}" for word in words)

    def _send(self, to: str | None, data: str, payer: str = "", gas_price: int = _GAS_PRICE) -> str:
        transaction = {"from": payer or self.payer, "data": data, "gas": _GAS, "gasPrice": hex(gas_price)}
        return str(self.ask("eth_sendTransaction", transaction | ({} if to is None else {"to": to})))


@contextmanager
def run_chain() -> Iterator[LocalChain]:
    """Run a chain; skip the test where there is no Node.js."""
    node = node_with(_PACKAGES)
    contracts = _compile(node)
    config = "hardhat.config.cjs"
    (node.folder / config).write_text((_PACKAGES / config).read_text())
    port = free_port()
    process = subprocess.Popen(
        [
            *(node.program, "node_modules/hardhat/internal/cli/cli.js", "node"),
            *("--hostname", "127.0.0.1", "--port", str(port)),
        ],
        cwd=node.folder,
        # On a server for tests it asks nobody anything, and looks for no news.
        env={**os.environ, "CI": "true", "HARDHAT_DISABLE_TELEMETRY_PROMPT": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx.Client(timeout=30, trust_env=False, verify=NO_TLS) as client:
            chain = LocalChain(f"http://127.0.0.1:{port}", client, contracts)
            _wait_until_ready(chain, process)
            chain.hasty_payer, chain.payer = chain.ask("eth_accounts")[-2:]
            chain.token = chain.deploy("Token", 18)
            chain.other_token = chain.deploy("Token", 18)
            chain.six_decimals = chain.deploy("Token", 6)
            chain.purse = chain.deploy("Purse")
            yield chain
    finally:
        process.terminate()
        process.wait(30)


def _compile(node: Node) -> Any:
    """Compile our contracts, unless they are cached."""
    source = (_PACKAGES / "contracts.sol").read_bytes()
    kept = node.folder / f"contracts-{sha256(source).hexdigest()[:16]}.json"
    if not kept.exists():
        compiled = subprocess.run(
            [node.program, str(_PACKAGES / "compile.cjs")],
            cwd=node.folder,
            input=source,
            capture_output=True,
            check=True,
            timeout=START_S,
        )
        whole = kept.with_suffix(f".{os.getpid()}")
        whole.write_bytes(compiled.stdout)
        whole.rename(kept)
    return json.loads(kept.read_bytes())


def _wait_until_ready(chain: LocalChain, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the chain ended with {process.returncode}"
        try:
            # Somebody else may listen on a port that was free a moment ago.
            assert chain.ask("web3_clientVersion").startswith("HardhatNetwork/")
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            assert int(chain.ask("eth_chainId"), 16) == CHAIN_ID
            return
    raise AssertionError("the chain did not become ready")
