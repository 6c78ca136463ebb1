"""Mail addresses: which texts can be one."""

import re
from typing import Final

from tumira.core import urls

_ATOM: Final = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
# RFC 5321, sections 4.1.2 and 4.5.3.1, without quoted names and numbers for hosts, which hardly anybody has.
MAIL_ADDRESS: Final = re.compile(
    rf"(?=.{{3,254}}\Z)(?=[^@]{{1,64}}@){_ATOM}(\.{_ATOM})*@(?:{urls.HOST_NAME.pattern})"
)
