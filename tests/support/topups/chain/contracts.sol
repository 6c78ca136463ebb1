// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

/// A token with as much as anybody wants: what is paid is made on the spot.
contract Token {
    uint8 public immutable decimals;
    bool public isStopped;

    event Transfer(address indexed payer, address indexed payee, uint256 amount);

    constructor(uint8 places) {
        decimals = places;
    }

    /// While it is stopped, every transfer fails.
    function stop(bool whether) external {
        isStopped = whether;
    }

    function transfer(address payee, uint256 amount) external returns (bool) {
        require(!isStopped, "stopped");
        emit Transfer(msg.sender, payee, amount);
        return true;
    }
}

/// A wallet that is a contract, and pays twice in one transaction.
contract Purse {
    function pay(Token token, address first, uint256 much, address second, uint256 more) external {
        token.transfer(first, much);
        token.transfer(second, more);
    }
}
