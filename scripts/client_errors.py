"""The error classes of the clients, one for each code, in three languages."""

from collections.abc import Mapping
from typing import Final

from tumira.api.docs.errors import ADVICE
from tumira.core.errors import Refusal, all_refusals

_FROM: Final = "Written by `make docs` from tumira/core/errors.py"


def client_errors() -> Mapping[str, str]:
    """Return what each generated file should hold, by its path in the repository."""
    return {
        "clients/python/tumira_client/codes.py": _python(),
        "clients/javascript/codes.js": _javascript(),
        "clients/javascript/codes.d.ts": _typescript(),
        "clients/php/src/codes.php": _php(),
    }


def class_name(refusal: type[Refusal], suffix: str = "Error") -> str:
    """Write `RATE_LIMITED` as `RateLimitedError`."""
    return refusal.code.title().replace("_", "").removesuffix(suffix) + suffix


def _when(refusal: type[Refusal]) -> str:
    return ADVICE[refusal].when.replace("*/", "")


def _python() -> str:
    classes = "\n".join(
        f'class {class_name(one)}(ApiError):\n    """The service answered `{one.code}`, {one.status}."""\n\n'
        for one in all_refusals()
    )
    entries = "".join(f'    "{one.code}": {class_name(one)},\n' for one in all_refusals())
    return (
        f'"""An error class for each code. {_FROM}."""\n\n'
        "from collections.abc import Mapping\nfrom typing import Final\n\n"
        "from tumira_client.errors import ApiError\n\n\n"
        f"{classes}\nBY_CODE: Final[Mapping[str, type[ApiError]]] = {{\n{entries}}}\n"
    )


def _javascript() -> str:
    classes = "".join(
        f"/** {_when(one)} */\nexport class {class_name(one)} extends ApiError {{}}\n\n"
        for one in all_refusals()
    )
    entries = "".join(f"  {one.code}: {class_name(one)},\n" for one in all_refusals())
    return (
        f'// An error class for each code. {_FROM}.\n\nimport {{ ApiError }} from "./errors.js";\n\n'
        f"{classes}export const BY_CODE = {{\n{entries}}};\n"
    )


def _typescript() -> str:
    classes = "".join(
        f"/** {_when(one)} */\nexport class {class_name(one)} extends ApiError {{}}\n"
        for one in all_refusals()
    )
    return (
        f'// {_FROM}.\n\nimport {{ ApiError }} from "./index.js";\n\n{classes}'
        "/** The class of each code. */\nexport const BY_CODE: Readonly<Record<string, typeof ApiError>>;\n"
    )


def _php() -> str:
    classes = "".join(
        f"/** {_when(one)} */\nclass {class_name(one, 'Exception')} extends ApiException\n{{\n}}\n\n"
        for one in all_refusals()
    )
    entries = "".join(
        f"        '{one.code}' => {class_name(one, 'Exception')}::class,\n" for one in all_refusals()
    )
    return (
        f"<?php\n\n// An exception for each code. {_FROM}.\n\n"
        "declare(strict_types=1);\n\nnamespace Tumira;\n\n"
        f"{classes}/** The exception of each code. */\nfinal class Codes\n{{\n"
        f"    public const BY_CODE = [\n{entries}    ];\n}}\n"
    )
