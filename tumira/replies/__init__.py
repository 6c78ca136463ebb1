"""What recipients say: their replies, the words that opt out and in, and the list of opt-outs."""
