"""Delivery: from the queue to a carrier, and from its receipts to final states and refunds."""
