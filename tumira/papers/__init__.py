"""Papers: invoices, receipts, credit notes and monthly statements, as stored and as PDF."""
