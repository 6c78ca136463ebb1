"""How the API describes itself: the OpenAPI document and the reference page, both made from the code."""
