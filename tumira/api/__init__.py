"""The JSON face: five endpoints under `/api/v1` and the document that describes them."""
