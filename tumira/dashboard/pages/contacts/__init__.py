"""Pages of contact lists and saved texts, and how other pages choose from them."""
