"""Pages of statements, invoices and receipts, and of the details that stand on them."""
