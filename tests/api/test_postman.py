"""The Postman collection: each of its requests is answered, in its order."""

import json
import re
import uuid
from typing import Any, Final

from scripts.postman import collection
from tests.support.processes.service import Service
from tumira.api.app import PREFIX
from tumira.api.docs.openapi import document

COLLECTION: Final = json.loads(collection())


def fill(text: str, variables: dict[str, str]) -> str:
    return re.sub(r"\{\{(.+?)\}\}", lambda found: variables[found[1]], text)


def keep(item: Any, answer: Any, variables: dict[str, str]) -> None:
    """Do what the scripts after an answer do: keep an id for later requests."""
    for event in item.get("event", []):
        (line,) = event["script"]["exec"]
        found = re.fullmatch(r'pm\.collectionVariables\.set\("(\w+)", pm\.response\.json\(\)\.(.+)\);', line)
        assert found is not None
        value = answer
        for name in re.findall(r"\w+", found[2]):
            value = value[int(name)] if name.isdecimal() else value[name]
        variables[found[1]] = value


def test_every_request_is_answered(service: Service) -> None:
    caller = service.open_account("1")
    variables = {one["key"]: one["value"] for one in COLLECTION["variable"]}
    variables |= {"base_url": "", "api_key": caller.key, "$guid": str(uuid.uuid4())}
    assert fill(COLLECTION["auth"]["bearer"][0]["value"], variables) == caller.key
    asked = set()
    for item in COLLECTION["item"]:
        request, variables["$guid"] = item["request"], str(uuid.uuid4())
        path = fill(request["url"]["raw"], variables)
        for one in request["url"].get("variable", []):
            path = path.replace(f":{one['key']}", fill(one["value"], variables))
        assert "/" + "/".join(request["url"]["path"]) == request["url"]["raw"].removeprefix("{{base_url}}")
        answer = service.call(
            caller,
            request["method"],
            path.removeprefix(PREFIX),
            headers={one["key"]: fill(one["value"], variables) for one in request.get("header", [])},
            content=request["body"]["raw"].encode() if "body" in request else None,
        )
        assert answer.is_success, (item["name"], answer.text)
        keep(item, answer.json(), variables)
        asked.add(item["id"].partition(" ")[0])
    described = json.loads(document())["paths"].values()
    assert asked == {operation["operationId"] for methods in described for operation in methods.values()}
